// value.name, value[key] and value[a:b:c] under the rules of Jinja's immutable sandbox.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace millrace::jinja {

// The attribute, else the item of that name, else Undefined.
Value get_attribute(const Value& value, std::string_view name);
// The attribute alone, if there is one.
std::optional<Value> find_attribute(const Value& value, std::string_view name);
// The item, else the attribute of that name, else Undefined.
Value get_item(const Value& value, const Value& key);
// The parts are None where they were left out.
Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step);

// Where a Python slice of `length` items starts and stops. A negative step goes down to `stop`, which may be -1.
struct SliceRange {
  int64_t start, stop, step;
  size_t count() const;
};
SliceRange resolve_slice(size_t length, const Value& start, const Value& stop, const Value& step);

}  // namespace millrace::jinja
