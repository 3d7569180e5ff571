// Regular expressions for the string formats of JSON Schema. Each matches a subset of the format.
#pragma once

#include <string>
#include <string_view>

#include "grammar/pattern/regex.h"

namespace millrace {

// Empty: JSON Schema does not define the format, and validators ignore it. With lengths given, the expression respects
// them or is small enough for counting states.
std::string string_format_regex(std::string_view format, Lengths lengths);

// An expression that matches a superset of what any validator accepts for the format; empty: there is no useful one.
std::string_view loose_format_regex(std::string_view format);

}  // namespace millrace
