// Multiples of a number such as 0.01. Validators divide doubles and ask for a whole quotient, which 0.07 / 0.01 is not:
// only numbers are written that are multiples both in decimal and by that division.
#pragma once

#include <string>

#include "grammar/numbers.h"

namespace millrace {

// The body of a rule; empty where there is no such number. Throws Usage where `step` is no number above 0.
std::string multiples_to_ebnf(const NumberBounds& bounds, double step, Ebnf& ebnf);

}  // namespace millrace
