// A grammar that applies from a trigger on: the answer is free until it opens a tool call, which the grammar then
// constrains.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/automaton/token_vocabulary.h"
#include "grammar/compiled_grammar.h"

namespace millrace {

struct GrammarTrigger {
  std::string text;        // its first byte must not occur again in it; the same holds for `restart`
  bool in_grammar = true;  // the grammar includes this text; otherwise it begins after it
  bool at_start = false;   // only at the start of an answer, white space aside
  std::string restart;     // with at_start: the answer starts again after this text; empty: never
  std::vector<std::pair<int32_t, std::string>> markers;  // special tokens whose text counts
};

std::unique_ptr<Constraint> make_triggered_constraint(GrammarTrigger trigger,
                                                      std::shared_ptr<const TokenVocabulary> vocabulary,
                                                      std::unique_ptr<TextConstraint> grammar);

}  // namespace millrace
