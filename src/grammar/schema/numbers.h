// Rules for JSON numbers between bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "grammar/rules.h"

namespace millrace {

struct NumberBounds {
  std::optional<long double> least, most;  // long double represents every 64-bit integer
  bool above = false, below = false;       // the bound is exclusive
  bool integer = false;
  int64_t multiple_of = 0;                // 0: none; otherwise numbers are integers
  std::vector<int64_t> not_multiples_of;  // if not empty, numbers are integers

  void at_least(long double bound, bool exclusive);
  void at_most(long double bound, bool exclusive);
  bool allow(long double value) const;
};

// The body of a rule; nullopt: there is no such number. Numbers have at most 15 digits before the point, and with
// bounds at most 6 after it, so that doubles represent them all. Larger bounds allow integers of up to 18 digits. With
// bounds, zero has no sign. Throws Usage if the bounds cannot be enforced.
std::optional<GrammarNode> number_rule(const NumberBounds& bounds, RuleBuilder& builder);

// Numbers that are not integers.
GrammarNode fraction_rule(const NumberBounds& bounds, RuleBuilder& builder);

}  // namespace millrace
