// Looks over the rules that a client sends before they are compiled: repetitions that multiply beyond bounds, and
// groups nested too deep.
#pragma once

#include <string_view>

namespace millrace {

// Throws Usage, with the line.
void check_ebnf(std::string_view ebnf);

}  // namespace millrace
