// Regular expressions for the formats of JSON Schema strings. Each matches a part of what the format allows, never
// more.
#pragma once

#include <string_view>

namespace millrace {

// Empty: a format that is not known.
std::string_view string_format_regex(std::string_view format);

}  // namespace millrace
