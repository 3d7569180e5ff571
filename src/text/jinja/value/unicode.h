// Python's view of text: UTF-8 strings by code point, with Python's character classes and case mappings.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/unicode/utf8.h"

namespace millrace::jinja {

// Of valid UTF-8.
inline size_t count_code_points(std::string_view text) { return count_characters(text); }
// The code point that starts at `position`, which moves behind it.
inline char32_t next_code_point(std::string_view text, size_t& position) { return next_utf8(text, position); }
// The start of the code point that ends at `position` (> 0).
inline size_t previous_code_point_start(std::string_view text, size_t position) {
  return previous_utf8(text, position);
}
// The offset of code point number `index`; the end of the text if there are fewer.
size_t code_point_offset(std::string_view text, size_t index);
inline void append_code_point(std::string& text, char32_t code_point) { append_utf8(text, code_point); }

bool is_space(char32_t c);       // str.isspace, str.strip and the regular expression \s
bool is_line_break(char32_t c);  // line boundaries of str.splitlines
bool is_alpha(char32_t c);
bool is_alnum(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);
bool is_identifier(std::string_view text);

// Full case mappings: one character may become several; includes the final sigma.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // upper-case first letter of each run of letters, lower-case rest
std::string to_capitalized(std::string_view text);  // upper-case first character, lower-case rest
std::string to_swapped_case(std::string_view text);
std::string to_case_folded(std::string_view text);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

}  // namespace millrace::jinja
