// What Python's string literals and number texts stand for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace millrace::jinja {

// "\r\n" and "\r" become "\n".
std::string normalize_newlines(std::string_view text);
// The text between the quotes of a literal, with its backslash escapes resolved.
std::string unescape_string(std::string_view body);

// Digits of a base, without sign or prefix; nothing when they do not fit or are none.
std::optional<Integer> parse_integer(std::string_view digits, int base);
// int(text, base) and float(text); nothing where Python fails.
std::optional<Integer> parse_python_integer(std::string_view text, int base);
std::optional<double> parse_python_real(std::string_view text);

}  // namespace millrace::jinja
