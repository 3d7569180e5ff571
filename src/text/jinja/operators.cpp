#include "text/jinja/operators.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "text/jinja/builtin/format_spec.h"
#include "text/jinja/builtin/percent_format.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/html.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/text_builder.h"

namespace millrace::jinja {
namespace {

constexpr std::string_view symbol_of(BinaryOperator op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<int>(op)];
}

[[noreturn]] void fail_overflow() { fail_template("an integer of more than 127 bits is not supported"); }

Integer floor_divide(Integer a, Integer b) {
  if (b == 0) fail_template("integer division or modulo by zero");
  if (b == -1) {
    Integer result;
    if (__builtin_sub_overflow(Integer(0), a, &result)) fail_overflow();
    return result;
  }
  const Integer quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Integer modulo(Integer a, Integer b) {
  if (b == 0) fail_template("integer division or modulo by zero");
  if (b == -1) return 0;
  const Integer remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double modulo(double a, double b) {
  if (b == 0) fail_template("float modulo by zero");
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double floor_divide(double a, double b) {
  if (b == 0) fail_template("float floor division by zero");
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) quotient -= 1;  // after the division, like Python
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value power(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) fail_template("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Integer result = 1;
  while (exponent > 0) {
    if (exponent & 1) {
      if (__builtin_mul_overflow(result, base, &result)) fail_overflow();
    }
    exponent >>= 1;
    // The last square is not needed and might overflow.
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::integer(result);
}

double power(double base, double exponent) {
  if (base == 0 && exponent < 0) fail_template("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(exponent) && exponent != std::floor(exponent)) {
    fail_template("complex numbers are not supported");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) fail_template("a power is out of range");
  return result;
}

Value apply_to_integers(BinaryOperator op, Integer a, Integer b) {
  Integer result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::Add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::Subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::Multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::Divide:
      if (b == 0) fail_template("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOperator::FloorDivide:
      return Value::integer(floor_divide(a, b));
    case BinaryOperator::Modulo:
      return Value::integer(modulo(a, b));
    case BinaryOperator::Power:
      return power(a, b);
  }
  if (overflow) fail_overflow();
  return Value::integer(result);
}

double apply_to_reals(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::Add:
      return a + b;
    case BinaryOperator::Subtract:
      return a - b;
    case BinaryOperator::Multiply:
      return a * b;
    case BinaryOperator::Divide:
      if (b == 0) fail_template("float division by zero");
      return a / b;
    case BinaryOperator::FloorDivide:
      return floor_divide(a, b);
    case BinaryOperator::Modulo:
      return modulo(a, b);
    case BinaryOperator::Power:
      break;
  }
  return power(a, b);
}

Value repeat(const Value& value, Integer count) {
  const size_t times = count <= 0 ? 0 : static_cast<size_t>(std::min<Integer>(count, Integer(1) << 40));
  if (value.is_string() && !has_content(value))
    return Value::text(TextBuilder().append(times, value.str()).take(), {}, value.is_markup());
  if (value.is_string()) {
    TextBuilder text;
    for (size_t i = 0; i < times && !value.str().empty(); ++i) text.append_value(value);
    return text.take_value(value.is_markup());
  }
  std::vector<Value> items;
  if (!value.items().empty()) {
    const size_t total = times * value.items().size();
    if (total > (size_t{1} << 22)) fail_template("a list of {} items is too long", total);
    Budget::spend(static_cast<int64_t>(total));
    items.reserve(total);
    for (size_t i = 0; i < times; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value add_texts(const Value& left, const Value& right) {
  if (!left.is_markup() && !right.is_markup()) {
    return TextBuilder().append_value(left).append_value(right).take_value();
  }
  const bool content = has_content(left) || has_content(right);
  return settle_content(Value::string(TextBuilder().append(escape_html(left)).append(escape_html(right)).take(), true),
                        content);
}

Value add_sequences(const Value& left, const Value& right) {
  std::vector<Value> items = to_vector(left);
  Budget::spend(static_cast<int64_t>(right.items().size() / 16));
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

std::string round_half_even_left_of_point(double value, int zeros) {
  // The integer digits are exact. The fraction matters only if the dropped digits are exactly one half.
  std::string digits = format_real(std::trunc(std::fabs(value)), 'f', 0);
  if (static_cast<int>(digits.size()) < zeros) return "0";
  digits.insert(0, 1, '0');
  const size_t kept = digits.size() - static_cast<size_t>(zeros);
  const std::string dropped = digits.substr(kept);
  const std::string half = "5" + std::string(static_cast<size_t>(zeros - 1), '0');
  const bool has_fraction = value != std::trunc(value);
  bool up = dropped > half || (dropped == half && (has_fraction || (digits[kept - 1] - '0') % 2 == 1));
  digits.resize(kept);
  for (size_t i = kept; up && i-- > 0;) {
    up = digits[i] == '9';
    digits[i] = up ? '0' : static_cast<char>(digits[i] + 1);
  }
  return digits + std::string(static_cast<size_t>(zeros), '0');
}

double round_real(double value, Integer digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits < -310) return std::copysign(0.0, value);
  const std::string text = digits >= 0 ? format_real(std::fabs(value), 'f', static_cast<int>(digits))
                                       : round_half_even_left_of_point(value, static_cast<int>(-digits));
  return std::copysign(std::strtod(text.c_str(), nullptr), value);
}

Integer round_integer(Integer value, Integer digits) {
  if (digits >= 0) return value;
  if (digits < -38) return 0;
  Integer unit = 1;
  for (Integer i = 0; i < -digits; ++i) unit *= 10;
  const Integer rest = modulo(value, unit);
  const Integer low = value - rest;
  const bool up = rest > unit - rest || (rest == unit - rest && modulo(floor_divide(low, unit), Integer(2)) == 1);
  Integer result = low;
  if (up && __builtin_add_overflow(low, unit, &result)) fail_overflow();
  return result;
}

}  // namespace

Value apply(BinaryOperator op, const Value& left, const Value& right) {
  if (left.is_int_like() && right.is_int_like()) return apply_to_integers(op, left.as_integer(), right.as_integer());
  if (left.is_number() && right.is_number()) return Value::real(apply_to_reals(op, left.as_real(), right.as_real()));
  if (op == BinaryOperator::Modulo && left.is_string())
    return settle_content(percent_format(left, right), has_content(left) || has_content(right));
  require_defined(left);
  require_defined(right);
  if (op == BinaryOperator::Add && left.is_string() && right.is_string()) return add_texts(left, right);
  if (op == BinaryOperator::Add && left.is_sequence() && right.is_sequence() && left.is_list() == right.is_list()) {
    return add_sequences(left, right);
  }
  if (op == BinaryOperator::Multiply) {
    if ((left.is_string() || left.is_sequence()) && right.is_int_like()) return repeat(left, right.as_integer());
    if ((right.is_string() || right.is_sequence()) && left.is_int_like()) return repeat(right, left.as_integer());
  }
  fail_template("unsupported operand type(s) for {}: '{}' and '{}'", symbol_of(op), left.type_name(),
                right.type_name());
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is_int_like()) return apply_to_integers(BinaryOperator::Subtract, 0, value.as_integer());
  if (value.is_real()) return Value::real(-value.as_real());
  fail_template("bad operand type for unary -: '{}'", value.type_name());
}

Value plus(const Value& value) {
  require_defined(value);
  if (value.is_int_like()) return Value::integer(value.as_integer());
  if (value.is_real()) return value;
  fail_template("bad operand type for unary +: '{}'", value.type_name());
}

Value absolute(const Value& value) {
  require_defined(value);
  if (!value.is_number()) fail_template("bad operand type for abs(): '{}'", value.type_name());
  if (value.is_real()) return Value::real(std::fabs(value.as_real()));
  return value.as_integer() < 0 ? negate(value) : Value::integer(value.as_integer());
}

Value round_number(const Value& value, Integer digits) {
  require_defined(value);
  if (value.is_int_like()) return Value::integer(round_integer(value.as_integer(), digits));
  if (value.is_real()) return Value::real(round_real(value.as_real(), digits));
  fail_template("type {} doesn't define __round__ method", value.type_name());
}

Value power_of_ten(Integer exponent) { return power(Integer(10), exponent); }

Integer truncate_to_integer(double value) {
  if (std::isnan(value)) fail_template("cannot convert float NaN to integer");
  if (std::isinf(value)) fail_template("cannot convert float infinity to integer");
  if (std::fabs(value) >= 0x1p126) fail_overflow();
  return static_cast<Integer>(value);
}

}  // namespace millrace::jinja
