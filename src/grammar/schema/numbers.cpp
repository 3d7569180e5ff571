#include "grammar/schema/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace millrace {
namespace {

constexpr long double kLargest = 1e15L, kLargestFar = 1e18L;
constexpr int kFraction = 6;  // digits
constexpr int64_t kScale = 1000000;
constexpr int64_t kMostListed = 2000;
constexpr int64_t kLargestDivisor = 64;  // of unbounded numbers

using Rule = std::optional<GrammarNode>;

GrammarNode digit(char first, char last) {
  if (first == last) return node::literal({&first, 1});
  return node::one_of({{static_cast<unsigned char>(first), static_cast<unsigned char>(last)}});
}

GrammarNode digits(int64_t least, int64_t most) { return node::repeat(digit('0', '9'), least, most); }

GrammarNode any_integer() {
  return node::sequence(node::maybe(node::literal("-")),
                        node::choice(digit('0', '9'), node::sequence(digit('1', '9'), digits(1, 14))));
}

GrammarNode any_number() {
  GrammarNode sign = node::maybe(node::one_of({{'+', '+'}, {'-', '-'}}));
  GrammarNode exponent = node::sequence(node::one_of({{'E', 'E'}, {'e', 'e'}}), std::move(sign), digits(1, 2));
  return node::sequence(any_integer(), node::maybe(node::sequence(".", digits(1, 16))),
                        node::maybe(std::move(exponent)));
}

// Divisibility: a number must be a multiple of `multiple` and of none of `indivisible`; `divisor` is their lcm.
struct Remainders {
  int64_t divisor = 1, multiple = 1;
  std::vector<int64_t> indivisible;
  bool allow(int64_t remainder) const {
    return remainder % multiple == 0 &&
           std::none_of(indivisible.begin(), indivisible.end(), [&](int64_t one) { return remainder % one == 0; });
  }
};

// Numbers from `least` to `most` (>= 0, in units of 10^-fraction) with a fixed number of digits before the point. The
// state is the position, whether all digits so far equal those of a bound, and the remainder of the division.
class SameLength {
 public:
  SameLength(std::string least, std::string most, size_t whole, Remainders remainders, RuleBuilder& builder)
      : least_(std::move(least)),
        most_(std::move(most)),
        whole_(whole),
        multiple_(remainders.divisor),
        remainders_(std::move(remainders)),
        builder_(builder) {}

  // nullopt: there is none.
  Rule rule(size_t at, bool on_least, bool on_most, int64_t remainder) {
    if (at == least_.size()) return remainders_.allow(remainder) ? node::empty() : Rule();
    const auto key = std::tuple(at, on_least, on_most, remainder);
    if (const auto found = rules_.find(key); found != rules_.end()) return found->second;
    Rule body = next_digits(at, on_least, on_most, remainder);
    if (!body) return rules_[key] = body;
    if (at == whole_) body = node::sequence(".", builder_.add(std::move(*body)));
    // After the point a number may end early, as if zeros followed; it must not fall below the bound then.
    const bool zeros_left = least_.find_first_not_of('0', at) == std::string::npos;
    if (at >= whole_ && (!on_least || zeros_left)) body = node::maybe(std::move(*body));
    return rules_[key] = builder_.add(std::move(*body));
  }

 private:
  Rule next_digits(size_t at, bool on_least, bool on_most, int64_t remainder) {
    const char low = on_least ? least_[at] : '0', high = on_most ? most_[at] : '9';
    std::vector<GrammarNode> ways;
    const auto way = [&](char first, char last, bool stays_least, bool stays_most) {
      const auto add = [&](char from, char to) {
        Rule rest = rule(at + 1, stays_least, stays_most, (remainder * 10 + (from - '0')) % multiple_);
        if (rest) ways.push_back(node::sequence(digit(from, to), std::move(*rest)));
      };
      if (multiple_ == 1 && first <= last) return add(first, last);
      for (char one = first; one <= last; ++one) add(one, one);
    };
    if (low == high) {
      way(low, high, on_least, on_most);
    } else {
      if (on_least) way(low, low, true, false);
      way(static_cast<char>(low + (on_least ? 1 : 0)), static_cast<char>(high - (on_most ? 1 : 0)), false, false);
      if (on_most) way(high, high, false, true);
    }
    return node::choice_of(std::move(ways));
  }

  std::string least_, most_;
  size_t whole_;
  int64_t multiple_;
  Remainders remainders_;
  RuleBuilder& builder_;
  std::map<std::tuple<size_t, bool, bool, int64_t>, Rule> rules_;
};

// From `least` to `most`, 0 <= least <= most, in units of 10^-fraction.
void add_positive(__int128 least, __int128 most, int fraction, const char* sign, const Remainders& remainders,
                  std::vector<GrammarNode>& ways, RuleBuilder& builder) {
  const __int128 unit = fraction > 0 ? kScale : 1;
  __int128 low = 0, high = 10 * unit - 1;  // the range of numbers with `whole` digits before the point
  for (size_t whole = 1; whole <= 18; ++whole) {
    const __int128 first = std::max(least, low), last = std::min(most, high);
    if (first <= last) {
      const auto text = [&](__int128 value) {
        return fmt::format("{:0{}}", static_cast<int64_t>(value / unit), whole) +
               (fraction > 0 ? fmt::format("{:0{}}", static_cast<int64_t>(value % unit), fraction) : "");
      };
      const Rule rule = SameLength(text(first), text(last), whole, remainders, builder).rule(0, true, true, 0);
      if (rule) ways.push_back(node::sequence(sign, *rule));
    }
    low = high + 1;
    high = high * 10 + 9;
  }
}

// A bound in units of 10^-6; from 1e8 on doubles are too coarse for that, and bounds are rounded to integers.
__int128 scaled(long double bound, bool exclusive, bool up, int fraction) {
  const bool coarse = fraction == 0 || std::abs(bound) >= 1e8L;
  const long double unit = coarse ? 1 : kScale;
  const long double exact = bound * unit;
  // A bound such as 0.1 is meant in decimal; its double is slightly off.
  long double whole = std::round(exact);
  const bool on_grid = coarse ? whole == exact : static_cast<double>(whole / unit) == static_cast<double>(bound);
  if (!on_grid) whole = up ? std::ceil(exact) : std::floor(exact);
  if (on_grid && exclusive) whole += up ? 1 : -1;
  const auto value = static_cast<__int128>(whole);
  return coarse && fraction > 0 ? value * kScale : value;
}

Rule list_multiples(int64_t least, int64_t most, int64_t multiple) {
  std::vector<GrammarNode> values;
  int64_t first = least / multiple * multiple;
  if (first < least) first += multiple;
  for (int64_t value = first; value <= most; value += multiple) values.push_back(node::literal(std::to_string(value)));
  return node::choice_of(std::move(values));
}

// For divisors too large for a digit automaton: lists the multiples nearest to 0.
Rule nearest_multiples(__int128 least, __int128 most, int64_t multiple) {
  const __int128 span = static_cast<__int128>(multiple) * (kMostListed / 2);
  if (least < -span) least = most < 0 ? std::max(least, most - span) : -span;
  if (most > span) most = least > 0 ? std::min(most, least + span) : span;
  return list_multiples(static_cast<int64_t>(least), static_cast<int64_t>(most), multiple);
}

// Multiples between bounds that are far apart. Trailing zeros of the divisor become literal zeros.
Rule bounded_multiples(__int128 least, __int128 most, int64_t multiple, RuleBuilder& builder) {
  const int64_t given = multiple;
  const __int128 given_least = least, given_most = most;
  std::string zeros;
  for (; multiple % 10 == 0; multiple /= 10) {
    zeros += '0';
    least = least < 0 ? -(-least / 10) : (least + 9) / 10;
    most = most < 0 ? -((-most + 9) / 10) : most / 10;
  }
  if (multiple > kLargestDivisor) return nearest_multiples(given_least, given_most, given);
  // A large divisor gets fewer digits, to limit the number of rules.
  __int128 end = 1;
  for (int64_t digits = std::clamp<int64_t>(300 / multiple, 4, 15); digits > 0; --digits) end *= 10;
  if (most >= end && least < end) most = end - 1;
  if (least <= -end && most > -end) least = 1 - end;
  std::vector<GrammarNode> ways;
  if (most > 0) add_positive(std::max<__int128>(least, 1), most, 0, "", {multiple, multiple, {}}, ways, builder);
  if (least < 0) add_positive(std::max<__int128>(-most, 1), -least, 0, "-", {multiple, multiple, {}}, ways, builder);
  for (GrammarNode& way : ways) way = node::sequence(std::move(way), zeros);
  if (least <= 0 && most >= 0) ways.push_back(node::literal("0"));
  if (ways.empty()) return nearest_multiples(given_least, given_most, given);
  return node::choice_of(std::move(ways));
}

// Multiples from 1 on. The state is the remainder of the digits so far and the number of digits left; a large divisor
// gets fewer digits, to limit the states.
GrammarNode positive_multiple(int64_t multiple, RuleBuilder& builder) {
  std::string zeros;
  for (; multiple % 10 == 0; multiple /= 10) zeros += '0';
  const int64_t most = std::clamp<int64_t>(300 / multiple, 4, std::max<int64_t>(4, 15 - std::ssize(zeros)));
  std::vector<Rule> next(static_cast<size_t>(multiple)),
      rules = next;  // by remainder; nullopt: no multiple is reachable
  const auto add_digits = [&](int64_t remainder, char first, std::vector<GrammarNode>& ways) {
    for (char d = first; d <= '9'; ++d) {
      const Rule& rest = next[static_cast<size_t>((remainder * 10 + (d - '0')) % multiple)];
      if (rest) ways.push_back(node::sequence(digit(d, d), *rest));
    }
  };
  next[0] = node::literal(zeros);
  for (int64_t left = 1; left < most; ++left) {
    for (int64_t remainder = 0; remainder < multiple; ++remainder) {
      std::vector<GrammarNode> ways;
      if (remainder == 0) ways.push_back(node::literal(zeros));
      add_digits(remainder, '0', ways);
      Rule body = node::choice_of(std::move(ways));
      rules[static_cast<size_t>(remainder)] = body ? builder.add(std::move(*body)) : std::move(body);
    }
    next = rules;
  }
  std::vector<GrammarNode> ways;
  add_digits(0, '1', ways);
  return *node::choice_of(std::move(ways));
}

// Integers with divisors that they must not have. The number of digits is limited as above.
Rule indivisible_rule(const NumberBounds& bounds, RuleBuilder& builder) {
  constexpr int64_t kLargestProduct = 1000;
  Remainders remainders{1, std::max<int64_t>(bounds.multiple_of, 1), bounds.not_multiples_of};
  remainders.divisor = remainders.multiple;
  for (const int64_t one : remainders.indivisible) {
    if (remainders.divisor <= kLargestProduct) remainders.divisor = std::lcm(remainders.divisor, one);
  }
  if (remainders.divisor > kLargestProduct)
    fail(ErrorKind::Usage, "the schema says of too many numbers, or too large ones, that they must not divide another");
  const int digits = static_cast<int>(std::clamp<int64_t>(100 / remainders.divisor, 4, 15));
  const long double end = std::pow(10.0L, digits) - 1;
  const auto far = [&](const std::optional<long double>& bound) { return bound && std::abs(*bound) > end; };
  if ((far(bounds.least) && *bounds.least > 0) || (far(bounds.most) && *bounds.most < 0))
    fail(ErrorKind::Usage, "the schema says far from 0 what must not divide a number, which cannot be enforced");
  const __int128 least =
      scaled(std::max(bounds.least.value_or(-end), -end), bounds.above && !far(bounds.least), true, 0);
  const __int128 most = scaled(std::min(bounds.most.value_or(end), end), bounds.below && !far(bounds.most), false, 0);
  std::vector<GrammarNode> ways;
  if (least > most) return {};
  if (most > 0) add_positive(std::max<__int128>(least, 1), most, 0, "", remainders, ways, builder);
  if (least < 0) add_positive(std::max<__int128>(-most, 1), -least, 0, "-", remainders, ways, builder);
  return node::choice_of(std::move(ways));
}

constexpr __int128 kMostFar = static_cast<__int128>(1e18);

int64_t without_zeros(int64_t multiple) {
  while (multiple % 10 == 0) multiple /= 10;
  return multiple;
}

}  // namespace

void NumberBounds::at_least(long double bound, bool exclusive) {
  if (least && (*least > bound || (*least == bound && above))) return;
  least = bound;
  above = exclusive;
}

void NumberBounds::at_most(long double bound, bool exclusive) {
  if (most && (*most < bound || (*most == bound && below))) return;
  most = bound;
  below = exclusive;
}

bool NumberBounds::allow(long double value) const {
  return !(least && (value < *least || (above && value == *least))) &&
         !(most && (value > *most || (below && value == *most)));
}

std::optional<GrammarNode> number_rule(const NumberBounds& bounds, RuleBuilder& builder) {
  if (!bounds.not_multiples_of.empty()) return indivisible_rule(bounds, builder);
  // Doubles this far from 0 have no fraction.
  const bool far = (bounds.least && *bounds.least >= kLargest) || (bounds.most && *bounds.most <= -kLargest);
  const bool whole = bounds.integer || bounds.multiple_of > 0 || far;
  if (!bounds.least && !bounds.most) {
    if (bounds.multiple_of > 1 && without_zeros(bounds.multiple_of) > kLargestDivisor)
      return nearest_multiples(-kMostFar, kMostFar, bounds.multiple_of);
    if (bounds.multiple_of > 1)
      return node::choice(
          "0", node::sequence(node::maybe(node::literal("-")), positive_multiple(bounds.multiple_of, builder)));
    return whole ? any_integer() : any_number();
  }
  const int fraction = whole ? 0 : kFraction;
  const __int128 unit = whole ? 1 : kScale;
  const long double largest = far ? kLargestFar : kLargest;
  const __int128 end = static_cast<__int128>(largest) * unit - 1;
  // Bounds beyond the digits that the grammar allows, such as those of 64-bit integers, have no effect.
  const bool low = bounds.least && *bounds.least > -largest, high = bounds.most && *bounds.most < largest;
  if (low && *bounds.least >= largest) fail(ErrorKind::Usage, "the schema wants a number of 1e18 or more");
  if (high && *bounds.most <= -largest) fail(ErrorKind::Usage, "the schema wants a number of -1e18 or less");
  const __int128 least = low ? scaled(*bounds.least, bounds.above, true, fraction) : -end;
  const __int128 most = high ? scaled(*bounds.most, bounds.below, false, fraction) : end;
  if (least > most) return {};
  if (bounds.multiple_of > 1) {
    const bool many = (most - least) / bounds.multiple_of > kMostListed;
    if (many && !bounds.most && least <= 1 &&
        without_zeros(bounds.multiple_of) <= kLargestDivisor) {  // negative multiples are left out
      GrammarNode positive = positive_multiple(bounds.multiple_of, builder);
      return least == 1 ? positive : node::choice("0", std::move(positive));
    }
    if (many) return bounded_multiples(least, most, bounds.multiple_of, builder);
    return list_multiples(static_cast<int64_t>(least), static_cast<int64_t>(most), bounds.multiple_of);
  }
  std::vector<GrammarNode> ways;
  if (most >= 0) add_positive(std::max<__int128>(least, 0), most, fraction, "", {}, ways, builder);
  if (least < 0) add_positive(std::max<__int128>(-most, 1), -least, fraction, "-", {}, ways, builder);
  return node::choice_of(std::move(ways));
}

// An integer n such that the bounds allow all of [n, n + 1], and decimals that are not all zeros.
GrammarNode fraction_rule(const NumberBounds& bounds, RuleBuilder& builder) {
  constexpr long double kMostWhole = 999999998;  // with six decimals still exact enough in a double
  const long double least = bounds.least.value_or(-kMostWhole), most = bounds.most.value_or(kMostWhole);
  const auto side = [&](long double from, long double to) {
    NumberBounds whole{.integer = true};
    whole.at_least(std::max<long double>(std::ceil(from), 0), false);
    whole.at_most(std::min(std::floor(to) - 1, kMostWhole), false);
    return number_rule(whole, builder);
  };
  const Rule above = side(least, most), below = side(-most, -least);
  const GrammarNode behind = node::sequence(".", digits(0, 5), digit('1', '9'));
  std::vector<GrammarNode> ways;
  if (above) ways.push_back(node::sequence(*above, behind));
  if (below) ways.push_back(node::sequence("-", *below, behind));
  if (ways.empty())
    fail(ErrorKind::Usage, "the schema wants a number between bounds that is no integer, which cannot be enforced");
  return *node::choice_of(std::move(ways));
}

}  // namespace millrace
