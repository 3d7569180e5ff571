#include <cmath>
#include <unordered_map>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/builtin/methods.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/objects.h"
#include "text/jinja/value/repr.h"

namespace millrace::jinja {
namespace {

template <DictView::Part Part>
Value view_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments none(arguments, "dict view", {});
  return Value::object(std::make_shared<DictView>(self, Part));
}

Value get_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "get", {"key", "default?", "/"});
  const Value* found = self.as_dict().find(args[0]);
  return found ? *found : args.value_or_none(1);
}

Value copy_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments none(arguments, "copy", {});
  return self;
}

Value fromkeys_method(Interpreter&, const Value&, const Arguments& arguments) {
  const BoundArguments args(arguments, "fromkeys", {"iterable", "value?", "/"});
  auto dict = std::make_shared<Dict>();
  const IteratorPtr iterator = iterate(args[0]);
  while (std::optional<Value> key = iterator->next()) dict->set(*std::move(key), args.value_or_none(1));
  return Value::dict(dict);
}

Value index_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "index", {"value", "start?", "stop?", "/"});
  const auto& items = self.items();
  const SliceRange range = resolve_slice(items.size(), args.value_or_none(1), args.value_or_none(2), Value());
  for (int64_t i = range.start; i < range.stop; ++i) {
    const Value& item = items[static_cast<size_t>(i)];
    if (item.is_same(args[0]) || equals(item, args[0])) return Value::integer(i);
  }
  fail_template("{} is not in {}", repr(args[0]), self.type_name());
}

Value count_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments args(arguments, "count", {"value", "/"});
  Integer count = 0;
  for (const Value& item : self.items()) count += item.is_same(args[0]) || equals(item, args[0]);
  return Value::integer(count);
}

Value bit_length_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments none(arguments, "bit_length", {});
  Integer bits = 0;
  for (Integer rest = self.as_integer(); rest != 0; rest /= 2) ++bits;
  return Value::integer(bits);
}

Value is_integer_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const BoundArguments none(arguments, "is_integer", {});
  return Value::boolean(std::isfinite(self.as_real()) && std::trunc(self.as_real()) == self.as_real());
}

std::optional<Value> number_attribute(const Value& self, std::string_view name) {
  if (name == "real") return self.is_boolean() ? Value::integer(self.as_integer()) : self;
  if (name == "imag") return self.is_real() ? Value::real(0) : Value::integer(0);
  if (self.is_real()) return std::nullopt;
  if (name == "numerator") return Value::integer(self.as_integer());
  if (name == "denominator") return Value::integer(1);
  return std::nullopt;
}

Method find_number_method(std::string_view name, bool is_real) {
  if (name == "bit_length" && !is_real) return bit_length_method;
  if (name == "is_integer" && is_real) return is_integer_method;
  return nullptr;
}

}  // namespace

Method find_dict_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"copy", copy_method},
      {"fromkeys", fromkeys_method},
      {"get", get_method},
      {"items", view_method<DictView::Part::Items>},
      {"keys", view_method<DictView::Part::Keys>},
      {"values", view_method<DictView::Part::Values>},
  };
  const auto found = kMethods.find(name);
  return found == kMethods.end() ? nullptr : found->second;
}

Method find_sequence_method(std::string_view name, bool is_list) {
  if (name == "index") return index_method;
  if (name == "count") return count_method;
  if (name == "copy" && is_list) return copy_method;
  return nullptr;
}

std::optional<Value> find_bound_method(const Value& self, std::string_view name) {
  if (self.is_number()) {
    if (std::optional<Value> attribute = number_attribute(self, name)) return attribute;
  }
  const Method method = self.is_string()     ? find_string_method(name)
                        : self.is_dict()     ? find_dict_method(name)
                        : self.is_sequence() ? find_sequence_method(name, self.is_list())
                        : self.is_number()   ? find_number_method(name, self.is_real())
                                             : nullptr;
  if (!method) return std::nullopt;
  return make_function(name, self.depth() + 1, [self, method](Interpreter& interpreter, const Arguments& arguments) {
    return settle_content(method(interpreter, self, arguments), has_content(self) || has_content(arguments));
  });
}

}  // namespace millrace::jinja
