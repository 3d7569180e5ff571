// The arguments of a call, and their binding to the parameters of a function.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  const Value* find_named(std::string_view name) const;
  int depth() const;  // container depth of the deepest argument
};

// The arguments in the order of the parameters. A parameter is "name", or "name?" if optional. As in Python, parameters
// in front of "/" are positional only. Fails like Python if the arguments do not fit.
class BoundArguments {
 public:
  BoundArguments(const Arguments& arguments, std::string_view function,
                 std::initializer_list<std::string_view> parameters);

  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  // The argument, or None if omitted.
  Value value_or_none(size_t i) const { return has(i) ? *values_[i] : Value(); }

  bool flag(size_t i, bool otherwise) const;  // truthiness of the argument
  Integer integer(size_t i) const;            // fails for other types
  Integer integer(size_t i, Integer otherwise) const { return has(i) ? integer(i) : otherwise; }
  const std::string& text(size_t i) const;  // fails for other types

 private:
  const std::string_view function_;
  std::vector<const Value*> values_;
};

}  // namespace millrace::jinja
