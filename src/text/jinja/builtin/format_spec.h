// Python's format mini-language ("{:>8.2f}") for numbers and strings, and helpers shared with "%8.2f".
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

// format(value, spec)
std::string format_value(const Value& value, std::string_view spec);

// Formats a double like printf's e, f or g (or their capitals), exact to the last digit. `alternate` keeps the point.
std::string format_real(double value, char type, int precision, bool alternate = false);

// Digits of an integer without sign, in base 2, 8, 10 or 16.
std::string integer_digits(Integer value, int base);

// Pads with `fill` to a width in code points. `align` is <, >, ^, or = for a fill between sign and digits.
std::string pad(std::string_view text, int64_t width, char align, std::string_view fill = " ");

// The largest width or precision of a format.
inline constexpr int64_t kMaxFormatWidth = 1 << 20;
int64_t checked_format_width(Integer width);

}  // namespace millrace::jinja
