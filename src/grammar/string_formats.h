// Regular expressions for the formats of JSON Schema strings. Each matches a part of what the format allows, never
// more.
#pragma once

#include <string>
#include <string_view>

#include "grammar/regex.h"

namespace millrace {

// Empty: a format that JSON Schema does not define, which to every validator is a remark. Where lengths are given, one
// that keeps to them, or is small enough for its characters to be counted.
std::string string_format_regex(std::string_view format, Lengths lengths);

// One that matches all that any validator takes for the format, and more; empty: there is none that says anything.
std::string_view loose_format_regex(std::string_view format);

}  // namespace millrace
