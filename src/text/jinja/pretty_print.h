// Values laid out over lines as Python's pprint does, for the pprint filter.
#pragma once

#include <string>

#include "text/jinja/value.h"

namespace millrace::jinja {

std::string pretty_print(const Value& value);

}  // namespace millrace::jinja
