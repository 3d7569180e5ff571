// multipleOf with fractions such as 0.01. Validators divide doubles and require an integral quotient, which 0.07 / 0.01
// is not. The grammar allows numbers that are multiples both in decimal and by that division.
#pragma once

#include <optional>

#include "grammar/schema/numbers.h"

namespace millrace {

// The body of a rule; nullopt: there is no such number. Throws Usage unless step > 0.
std::optional<GrammarNode> multiples_rule(const NumberBounds& bounds, double step, RuleBuilder& builder);

}  // namespace millrace
