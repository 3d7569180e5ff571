// The filters: value | name(arguments).
#pragma once

#include <string_view>

#include "text/jinja/object.h"

namespace millrace::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value& subject, const Arguments&);

// Null when there is none of that name.
FilterFunction find_filter(std::string_view name);

// The parts of the list, by what they work on.
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_number_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_selection_filter(std::string_view name);

}  // namespace millrace::jinja
