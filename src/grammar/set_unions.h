// Sets of characters that rules can begin with: an automaton tells \s and \S apart, and yet both may follow. Tokens are
// best sorted by all of them together.
#pragma once

#include <vector>

#include "grammar/rules.h"

namespace millrace {

// The union of each rule that has several, each once; not all of a large grammar.
std::vector<CodeSet> united_first_sets(const GrammarRules& rules);

}  // namespace millrace
