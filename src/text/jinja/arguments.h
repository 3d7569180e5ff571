// The arguments of one call, and how they meet a function's parameters.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace millrace::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  const Value* find_named(std::string_view name) const;
  int depth() const;  // of the deepest argument
};

// The arguments in the order of the parameters. A parameter is "name", "name?" when it may be left out, and follows a
// "/" when the ones before it take no keyword, as in Python. Fails as Python would when they do not fit.
class BoundArguments {
 public:
  BoundArguments(const Arguments& arguments, std::string_view function,
                 std::initializer_list<std::string_view> parameters);

  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  // The argument, or None when it was left out.
  Value value_or_none(size_t i) const { return has(i) ? *values_[i] : Value(); }

  bool flag(size_t i, bool otherwise) const;  // truth of the argument
  Integer integer(size_t i) const;            // fails when it is no integer
  Integer integer(size_t i, Integer otherwise) const { return has(i) ? integer(i) : otherwise; }
  const std::string& text(size_t i) const;  // fails when it is no string

 private:
  const std::string_view function_;
  std::vector<const Value*> values_;
};

}  // namespace millrace::jinja
