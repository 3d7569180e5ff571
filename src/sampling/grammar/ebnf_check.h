// Looks over the rules that a client sends before they are compiled: repetitions that multiply beyond bounds, groups
// nested too deep, and features of the compiler that are not part of the notation.
#pragma once

#include <string_view>

namespace millrace {

// Throws Usage, with the line.
void check_ebnf(std::string_view ebnf);
// The same, with the narrower bounds of what XGrammar compiles in about a second.
void check_ebnf_size(std::string_view ebnf);

}  // namespace millrace
