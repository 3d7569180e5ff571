// Reads EBNF, as XGrammar and llama.cpp write it, into rules.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace millrace {

// Knows literals, classes, groups, choices, repetitions and rule names. Throws Usage with the line of an error.
GrammarRules parse_ebnf(std::string_view text);

}  // namespace millrace
