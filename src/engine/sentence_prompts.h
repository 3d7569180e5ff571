// The prompts of a sentence-transformers folder: texts that are put before an input, by the name of its task.
#pragma once

#include <map>
#include <string>

#include "formats/weight_source.h"

namespace millrace {

struct SentencePrompts {
  std::map<std::string, std::string, std::less<>> texts;
  std::string usual;  // the name of the prompt of inputs without a task; "": none
};

// From config_sentence_transformers.json; a model without the file has no prompts.
SentencePrompts read_sentence_prompts(const WeightSource& source);

}  // namespace millrace
