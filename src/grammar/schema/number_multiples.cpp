#include "grammar/schema/number_multiples.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace millrace {
namespace {

constexpr int64_t kMostSteps = 2000;
constexpr int64_t kLargestWithQuarters = 1000000000;

// units / 10^scale
struct Decimal {
  int64_t units = 0;
  int scale = 0;
  int64_t one() const { return static_cast<int64_t>(std::llround(std::pow(10.0, scale))); }
};

// The shortest decimal that parses to the double.
Decimal decimal_of(double step) {
  for (int scale = 0; scale <= 9; ++scale) {
    const double scaled = std::round(step * std::pow(10.0, scale));
    if (scaled < 1 || scaled > 1e12) continue;
    const std::string text = fmt::format("{}e-{}", static_cast<int64_t>(scaled), scale);
    double back = 0;
    std::from_chars(text.data(), text.data() + text.size(), back);
    if (back == step) return {static_cast<int64_t>(scaled), scale};
  }
  fail(ErrorKind::Usage, "the schema has a multipleOf with too many digits: {}", step);
}

// Whether the double is within 2^-54 of the decimal (relative), so that every quotient rounds to an integer.
bool divides_exactly(double step, const Decimal& decimal) {
  int exponent = 0;
  const auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(step, &exponent), 53));
  exponent -= 53;  // step = mantissa * 2^exponent
  if (exponent > 0 || exponent < -80) return false;
  const __int128 off =
      static_cast<__int128>(mantissa) * decimal.one() - (static_cast<__int128>(decimal.units) << -exponent);
  const __int128 limit = (static_cast<__int128>(decimal.units) << -exponent) >> 54;
  return (off < 0 ? -off : off) <= limit;
}

std::string decimal_text(int64_t steps, const Decimal& step) {
  const __int128 units = static_cast<__int128>(steps < 0 ? -steps : steps) * step.units;
  std::string text = fmt::format("{}", static_cast<int64_t>(units / step.one()));
  const auto rest = static_cast<int64_t>(units % step.one());
  if (rest > 0) text += fmt::format(".{:0{}}", rest, step.scale);
  while (rest > 0 && text.back() == '0') text.pop_back();
  return (steps < 0 ? "-" : "") + text;
}

std::optional<GrammarNode> list_steps(const NumberBounds& bounds, double step, const Decimal& decimal, int64_t first,
                                      int64_t last) {
  std::vector<GrammarNode> values;
  for (int64_t steps = first; steps <= last; ++steps) {
    const std::string text = decimal_text(steps, decimal);
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = text.find('.') == std::string::npos;
    if (value / step != static_cast<double>(steps) || !bounds.allow(value) || (bounds.integer && !whole)) continue;
    values.push_back(node::literal(text));
  }
  return node::choice_of(std::move(values));
}

// Integers from 0 on with .25, .5 or .75, which doubles represent exactly.
std::optional<GrammarNode> with_quarters(NumberBounds bounds, const Decimal& step, RuleBuilder& builder) {
  bounds.at_least(0, false);
  bounds.at_most(bounds.most ? *bounds.most - 1 : kLargestWithQuarters, false);
  bounds.at_most(kLargestWithQuarters, false);
  bounds.integer = true;
  std::vector<GrammarNode> ends;
  for (const auto& [hundredths, text] : {std::pair{25, "25"}, std::pair{50, "5"}, std::pair{75, "75"}}) {
    const int64_t scaled = hundredths * step.one();
    if (scaled % 100 == 0 && scaled / 100 % step.units == 0) ends.push_back(node::literal(text));
  }
  if (ends.empty()) return {};
  std::optional<GrammarNode> whole = number_rule(bounds, builder);
  if (!whole) return {};
  return node::sequence(std::move(*whole), ".", *node::choice_of(std::move(ends)));
}

}  // namespace

std::optional<GrammarNode> multiples_rule(const NumberBounds& bounds, double step, RuleBuilder& builder) {
  if (!(step > 0)) fail(ErrorKind::Usage, "the schema's multipleOf is not a number above 0");
  const Decimal decimal = decimal_of(step);
  const long double first = bounds.least ? std::ceil(*bounds.least / step) - 1 : -kMostSteps / 2;
  const long double last = bounds.most ? std::floor(*bounds.most / step) + 1 : first + kMostSteps;
  const int64_t whole = decimal.units / std::gcd(decimal.units, decimal.one());
  const bool few = bounds.least && bounds.most && last - first <= kMostSteps;
  if (few || !divides_exactly(step, decimal) || whole > 1000000) {
    // Lists all multiples if they are few; otherwise kMostSteps of them, around zero or from the bound nearer to zero.
    const bool below = bounds.most && *bounds.most < 0;
    const long double from = few ? first : below ? last - kMostSteps : std::max<long double>(first, -kMostSteps / 2);
    const long double to = few ? last : std::min<long double>(last, from + kMostSteps);
    if (std::abs(from) > 1e9 || std::abs(to) > 1e9)
      fail(ErrorKind::Usage, "the schema has a multipleOf {} with bounds so far from 0 that it cannot be enforced",
           step);
    return list_steps(bounds, step, decimal, static_cast<int64_t>(from), static_cast<int64_t>(to));
  }
  NumberBounds multiples = bounds;
  multiples.multiple_of = whole;
  std::vector<GrammarNode> ways;
  if (auto numbers = number_rule(multiples, builder)) ways.push_back(std::move(*numbers));
  if (whole == 1 && !bounds.integer) {
    if (auto more = with_quarters(bounds, decimal, builder)) ways.push_back(std::move(*more));
  }
  return node::choice_of(std::move(ways));
}

}  // namespace millrace
