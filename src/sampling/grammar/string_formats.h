// Regular expressions for the formats of JSON Schema strings. Each matches a part of what the format allows, never
// more.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

// Empty: a format that JSON Schema does not define, which to every validator is a remark. Where texts must be short,
// `most` characters (-1: any number), one that does not allow long ones, and so is small enough for its lengths to be
// counted.
std::string_view string_format_regex(std::string_view format, int64_t most = -1);

}  // namespace millrace
