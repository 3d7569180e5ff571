// Checks EBNF from a client before it is parsed: groups must not nest too deep, repetitions must not multiply to too
// many parts.
#pragma once

#include <string_view>

namespace millrace {

// Throws Usage with the line of the error.
void check_ebnf(std::string_view ebnf);

}  // namespace millrace
