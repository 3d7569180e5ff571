#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/builtin/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/parse/string_literal.h"
#include "text/jinja/template_error.h"

namespace millrace::jinja {
namespace {

Value abs_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments none(arguments, "abs", {});
  return absolute(subject);
}

std::optional<double> real_of(const Value& value) {
  require_defined(value);
  if (value.is_number()) return value.as_real();
  return value.is_string() ? parse_python_real(value.str()) : std::nullopt;
}

Value int_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "int", {"default?", "base?"});
  require_defined(subject);
  if (subject.is_int_like()) return Value::integer(subject.as_integer());
  if (subject.is_real() && std::isinf(subject.as_real())) fail_template("cannot convert float infinity to integer");
  if (subject.is_string()) {
    const Integer base = args.integer(1, 10);
    const bool sensible = base >= 0 && base <= 36;
    if (const auto value = parse_python_integer(subject.str(), sensible ? static_cast<int>(base) : 1)) {
      return Value::integer(*value);
    }
  }
  // "42.23" gives 42.
  const std::optional<double> real = real_of(subject);
  if (real && std::isfinite(*real)) return Value::integer(truncate_to_integer(*real));
  return args.has(0) ? args[0] : Value::integer(0);
}

Value float_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "float", {"default?"});
  if (const std::optional<double> value = real_of(subject)) return Value::real(*value);
  return args.has(0) ? args[0] : Value::real(0);
}

Value round_filter(Interpreter&, const Value& subject, const Arguments& arguments) {
  const BoundArguments args(arguments, "round", {"precision?", "method?"});
  const Integer digits = args.integer(0, 0);
  const std::string method = args.has(1) ? args.text(1) : "common";
  if (method == "common") return round_number(subject, digits);
  if (method != "ceil" && method != "floor") fail_template("method must be common, ceil or floor");
  const Value unit = power_of_ten(digits);
  const Value scaled = apply(BinaryOperator::Multiply, subject, unit);
  if (!scaled.is_number()) fail_template("must be real number, not {}", scaled.type_name());
  const double size = scaled.as_real();
  const Value whole = scaled.is_int_like()
                          ? scaled
                          : Value::integer(truncate_to_integer(method == "ceil" ? std::ceil(size) : std::floor(size)));
  return apply(BinaryOperator::Divide, whole, unit);
}

}  // namespace

FilterFunction find_number_filter(std::string_view name) {
  if (name == "abs") return abs_filter;
  if (name == "int") return int_filter;
  if (name == "float") return float_filter;
  if (name == "round") return round_filter;
  return nullptr;
}

}  // namespace millrace::jinja
