// Prompts for filling in the middle: the model writes the text between a prefix and a suffix.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace millrace {

struct InfillText {
  std::string prefix, suffix;
  std::vector<std::pair<std::string, std::string>> files;  // name and text of related files, as context
};

bool can_infill(const Tokenizer& tokenizer);

// Throws ApiError about `field` if the vocabulary has no fill-in-the-middle tokens. Special tokens in the texts are
// plain text.
std::vector<int32_t> infill_prompt(const Tokenizer& tokenizer, const InfillText& text, const char* field);

}  // namespace millrace
