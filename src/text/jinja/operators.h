// Python's arithmetic on values: numbers, texts, lists and tuples.
#pragma once

#include "text/jinja/value.h"

namespace millrace::jinja {

enum class BinaryOperator { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };

Value apply(BinaryOperator op, const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);
Value absolute(const Value& value);

// round() to a number of decimal digits, half to even, as Python rounds the exact value of a double.
Value round_number(const Value& value, Integer digits);
// 10 ** exponent, an integer or, below zero, a double.
Value power_of_ten(Integer exponent);

// An integer of a double that has no fraction to lose; fails when it does not fit.
Integer truncate_to_integer(double value);

}  // namespace millrace::jinja
