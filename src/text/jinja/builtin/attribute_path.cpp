#include "text/jinja/builtin/attribute_path.h"

#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/parse/string_literal.h"
#include "text/jinja/value/split.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {

AttributePath::AttributePath(const Value& attribute) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  for (const std::string_view part : split_text(attribute.str(), ".", -1)) {
    const std::optional<Integer> number = parse_integer(part, 10);
    parts_.push_back(number ? Value::integer(*number) : Value::string(std::string(part)));
  }
}

Value AttributePath::get(const Value& item, const Value& otherwise) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = get_item(value, part);
    if (value.is_undefined() && !otherwise.is_none()) value = otherwise;
  }
  return value;
}

Value ignore_case(const Value& value) {
  return value.is_string() ? Value::string(to_lower(value.str()), value.is_markup()) : value;
}

}  // namespace millrace::jinja
