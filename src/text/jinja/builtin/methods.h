// Methods of the built-in types: "text".strip(), {...}.items(), [...].index(x).
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/value/object.h"

namespace millrace::jinja {

using Method = Value (*)(Interpreter&, const Value& self, const Arguments&);

Method find_string_method(std::string_view name);
Method find_dict_method(std::string_view name);
Method find_sequence_method(std::string_view name, bool is_list);

// A method bound to the value, or an attribute of a number (real, imag, ...).
std::optional<Value> find_bound_method(const Value& self, std::string_view name);

}  // namespace millrace::jinja
