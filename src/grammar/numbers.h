// JSON numbers between bounds, as rules of a grammar.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "grammar/rules.h"

namespace millrace {

struct NumberBounds {
  std::optional<long double> least, most;  // which has room for every 64-bit integer
  bool above = false, below = false;       // the bound itself does not count
  bool integer = false;
  int64_t multiple_of = 0;                // 0: of nothing in particular; else numbers are integers
  std::vector<int64_t> not_multiples_of;  // where there are some, numbers are integers

  void at_least(long double bound, bool exclusive);
  void at_most(long double bound, bool exclusive);
  bool allow(long double value) const;
};

// The body of a rule. Numbers have at most 15 digits before the point, and with bounds at most 6 after it: every double
// tells them apart. Bounds beyond them are those of integers with 18 digits. With bounds, zero has no sign. Empty where
// there is no such number.
// Throws Usage where it cannot be said.
std::optional<GrammarNode> number_rule(const NumberBounds& bounds, RuleBuilder& builder);

// Numbers that are no integers.
GrammarNode fraction_rule(const NumberBounds& bounds, RuleBuilder& builder);

}  // namespace millrace
