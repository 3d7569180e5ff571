// Python's str.format: "{} is {age:>3} in {place[city]}".
#pragma once

#include "text/jinja/arguments.h"

namespace millrace::jinja {

Value brace_format(const Value& format, const Arguments& arguments);

}  // namespace millrace::jinja
