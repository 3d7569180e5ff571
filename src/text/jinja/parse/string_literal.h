// Parses Python's string literals and numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

// "\r\n" and "\r" become "\n".
std::string normalize_newlines(std::string_view text);
// Resolves the backslash escapes of the text between the quotes.
std::string unescape_string(std::string_view body);

// Parses digits without sign and prefix. Empty for invalid digits and for overflow.
std::optional<Integer> parse_integer(std::string_view digits, int base);
// int(text, base) and float(text). Empty if Python fails.
std::optional<Integer> parse_python_integer(std::string_view text, int base);
std::optional<double> parse_python_real(std::string_view text);

}  // namespace millrace::jinja
