// The `attribute` argument of filters: "name", "address.city", "tags.0", or a number.
#pragma once

#include <vector>

#include "text/jinja/value.h"

namespace millrace::jinja {

class AttributePath {
 public:
  // None is the empty path: the item itself.
  explicit AttributePath(const Value& attribute);
  // `otherwise` stands in for what is undefined, unless it is None.
  Value get(const Value& item, const Value& otherwise = {}) const;

 private:
  std::vector<Value> parts_;
};

// A string in lower case, other values as they are: how filters compare unless told that case matters.
Value ignore_case(const Value& value);

}  // namespace millrace::jinja
