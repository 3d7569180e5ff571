// Sets of characters that rules can begin with: an automaton tells \s and \S apart, and yet both may follow. Tokens are
// best sorted by all of them together.
#pragma once

#include <vector>

#include "grammar/ebnf_parser.h"

namespace millrace {

// The union of each rule that has several, each once; not all of a large grammar.
std::vector<CharSet> united_first_sets(const EbnfRules& rules);

}  // namespace millrace
