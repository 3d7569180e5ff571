// A grammar that holds from a trigger on: the model answers as it likes, and when it opens a tool call, what follows
// must be one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/token_vocabulary.h"

namespace millrace {

struct GrammarTrigger {
  std::string text;        // its first byte must not come again inside of it, and the same goes for `restart`
  bool in_grammar = true;  // the grammar begins with this text; else right after it
  bool at_start = false;   // only the first thing of an answer counts, space aside
  std::string restart;     // with at_start: an answer counts as begun anew after this; empty: never
  std::vector<std::pair<int32_t, std::string>> markers;  // special tokens whose text takes part
};

std::unique_ptr<Constraint> make_triggered_constraint(GrammarTrigger trigger,
                                                      std::shared_ptr<const TokenVocabulary> vocabulary,
                                                      std::unique_ptr<TextConstraint> grammar);

}  // namespace millrace
