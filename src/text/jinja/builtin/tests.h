// Tests: value is name(arguments).
#pragma once

#include <string_view>

#include "text/jinja/value/object.h"

namespace millrace::jinja {

using TestFunction = bool (*)(const Value& subject, const Arguments&);

// Null if no test has the name.
TestFunction find_test(std::string_view name);

}  // namespace millrace::jinja
