#include "text/jinja/builtin/tests.h"

#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtin/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/split.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

template <bool (*Is)(const Value&)>
bool simple(const Value& value, const Arguments& arguments) {
  const BoundArguments none(arguments, "test", {});
  return Is(value);
}

template <bool (*Is)(const Value&, const Value&)>
bool with_other(const Value& value, const Arguments& arguments) {
  const BoundArguments args(arguments, "test", {"other"});
  return Is(value, args[0]);
}

bool is_true(const Value& v) { return v.is_boolean() && v.as_boolean(); }
bool is_false(const Value& v) { return v.is_boolean() && !v.as_boolean(); }
bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is_boolean(); }
bool is_integer(const Value& v) { return v.is_integer(); }
bool is_float(const Value& v) { return v.is_real(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }

// Jinja requires a length and an index. Its Undefined has both.
bool is_sequence(const Value& v) {
  if (v.is_object()) return v.type_name() == "range";
  return v.is_string() || v.is_sequence() || v.is_dict() || v.is_undefined();
}

bool is_callable(const Value& v) { return v.is_undefined() || (v.is_object() && v.as_object()->callable()); }

bool remainder_is(const Value& value, const Value& divisor, Integer wanted) {
  return equals(apply(BinaryOperator::Modulo, value, divisor), Value::integer(wanted));
}

bool is_odd(const Value& v) { return remainder_is(v, Value::integer(2), 1); }
bool is_even(const Value& v) { return remainder_is(v, Value::integer(2), 0); }

bool is_divisible(const Value& value, const Arguments& arguments) {
  const BoundArguments args(arguments, "divisibleby", {"num"});
  return remainder_is(value, args[0], 0);
}

bool text_is_lower(const Value& v) { return has_case(to_text(v), is_lower, is_upper); }
bool text_is_upper(const Value& v) { return has_case(to_text(v), is_upper, is_lower); }

bool names_filter(const Value& v) { return v.is_string() && find_filter(v.str()); }
bool names_test(const Value& v) { return v.is_string() && find_test(v.str()); }

bool same(const Value& a, const Value& b) { return a.is_same(b); }
bool not_equals(const Value& a, const Value& b) { return !equals(a, b); }
bool greater(const Value& a, const Value& b) { return less(b, a); }
bool greater_or_equal(const Value& a, const Value& b) { return less_or_equal(b, a); }

bool is_in(const Value& value, const Arguments& arguments) {
  const BoundArguments args(arguments, "in", {"seq"});
  return contains(args[0], value);
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> kTests = {
      {"!=", with_other<not_equals>},
      {"<", with_other<less>},
      {"<=", with_other<less_or_equal>},
      {"==", with_other<equals>},
      {">", with_other<greater>},
      {">=", with_other<greater_or_equal>},
      {"boolean", simple<is_boolean>},
      {"callable", simple<is_callable>},
      {"defined", simple<is_defined>},
      {"divisibleby", is_divisible},
      {"eq", with_other<equals>},
      {"equalto", with_other<equals>},
      {"even", simple<is_even>},
      {"false", simple<is_false>},
      {"filter", simple<names_filter>},
      {"float", simple<is_float>},
      {"ge", with_other<greater_or_equal>},
      {"greaterthan", with_other<greater>},
      {"gt", with_other<greater>},
      {"in", is_in},
      {"integer", simple<is_integer>},
      {"iterable", simple<is_iterable>},
      {"le", with_other<less_or_equal>},
      {"lessthan", with_other<less>},
      {"lower", simple<text_is_lower>},
      {"lt", with_other<less>},
      {"mapping", simple<is_mapping>},
      {"ne", with_other<not_equals>},
      {"none", simple<is_none>},
      {"number", simple<is_number>},
      {"odd", simple<is_odd>},
      {"sameas", with_other<same>},
      {"sequence", simple<is_sequence>},
      {"string", simple<is_string>},
      {"test", simple<names_test>},
      {"true", simple<is_true>},
      {"undefined", simple<is_undefined>},
      {"upper", simple<text_is_upper>},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace millrace::jinja
