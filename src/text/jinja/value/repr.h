// Python's str() and repr().
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

std::string to_text(const Value& value);  // str(value)
std::string repr(const Value& value);     // repr(value)
std::string repr_text(std::string_view text, bool ascii_only = false);
std::string repr_real(double value);  // the shortest text that parses to the same number
std::string integer_text(Integer value);

}  // namespace millrace::jinja
