// The `attribute` argument of filters: "name", "address.city", "tags.0", or a number.
#pragma once

#include <vector>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

class AttributePath {
 public:
  // None is the empty path and gives the item itself.
  explicit AttributePath(const Value& attribute);
  // Returns `otherwise`, unless it is None, for an undefined result.
  Value get(const Value& item, const Value& otherwise = {}) const;

 private:
  std::vector<Value> parts_;
};

// Lower-cases strings and keeps other values, for filters with case_sensitive=false.
Value ignore_case(const Value& value);

}  // namespace millrace::jinja
