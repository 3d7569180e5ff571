// Prints rules as EBNF, for tests, for people and for the comparison with XGrammar.
#pragma once

#include <string>
#include <string_view>

#include "grammar/rules.h"

namespace millrace {

std::string ebnf_literal(std::string_view text);  // "..." of any UTF-8 text

// parse_ebnf() reads it back as the same grammar.
std::string write_ebnf(const GrammarRules& rules);

}  // namespace millrace
