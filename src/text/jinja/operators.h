// Python's arithmetic on numbers, strings, lists and tuples.
#pragma once

#include "text/jinja/value/value.h"

namespace millrace::jinja {

enum class BinaryOperator { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };

Value apply(BinaryOperator op, const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);
Value absolute(const Value& value);

// round() to decimal digits: rounds the exact value of a double half to even, like Python.
Value round_number(const Value& value, Integer digits);
// 10 ** exponent: an integer, or a double for a negative exponent.
Value power_of_ten(Integer exponent);

// Truncates a finite double. Fails if the result does not fit.
Integer truncate_to_integer(double value);

}  // namespace millrace::jinja
