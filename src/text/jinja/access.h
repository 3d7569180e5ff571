// value.name, value[key] and value[a:b:c] with the rules of Jinja's immutable sandbox.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

// The attribute, else the item of that name, else Undefined.
Value get_attribute(const Value& value, std::string_view name);
// The attribute without the fallbacks.
std::optional<Value> find_attribute(const Value& value, std::string_view name);
// The item, else the attribute of that name, else Undefined.
Value get_item(const Value& value, const Value& key);
// Omitted parts are None.
Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step);

// The resolved bounds of a Python slice. With a negative step, `stop` may be -1.
struct SliceRange {
  int64_t start, stop, step;
  size_t count() const;
};
SliceRange resolve_slice(size_t length, const Value& start, const Value& stop, const Value& step);

}  // namespace millrace::jinja
