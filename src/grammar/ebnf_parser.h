// Reads EBNF, as XGrammar and llama.cpp write it, into rules.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace millrace {

// Literals, classes, groups, choices, repetitions and names. Throws Usage, with the line, where the text is wrong.
GrammarRules parse_ebnf(std::string_view text);

}  // namespace millrace
