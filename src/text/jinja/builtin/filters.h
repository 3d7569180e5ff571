// Filters: value | name(arguments). Contains Jinja's filters that published chat templates use; an unknown filter is an
// error with its name.
#pragma once

#include <string_view>

#include "text/jinja/value/object.h"

namespace millrace::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value& subject, const Arguments&);

// Null if no filter has the name.
FilterFunction find_filter(std::string_view name);

// The filters by the type of their subject.
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_number_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_selection_filter(std::string_view name);

}  // namespace millrace::jinja
