// Multiples of a number such as 0.01. Validators divide doubles and ask for a whole quotient, which 0.07 / 0.01 is not:
// only numbers are written that are multiples both in decimal and by that division.
#pragma once

#include <optional>

#include "grammar/numbers.h"

namespace millrace {

// The body of a rule; empty where there is no such number. Throws Usage where `step` is no number above 0.
std::optional<GrammarNode> multiples_rule(const NumberBounds& bounds, double step, RuleBuilder& builder);

}  // namespace millrace
