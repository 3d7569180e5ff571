#include "sampling/selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace millrace {
namespace {

// Bits that compare as unsigned integers like the floats compare as numbers.
uint32_t ordered_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 becomes 0, which it equals
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The smallest key that is still taken when items are taken from the largest key down until their sizes reach a target,
// and how much of the target is left for the items of this very key.
struct Border {
  uint32_t key = 0;
  double left = 0;
};

// Of few items: they are put in order.
constexpr size_t kFew = 128;
template <class Key, class Size, class TakesPart>
Border find_border_of_few(size_t count, double target, Key key, Size size, TakesPart takes_part) {
  std::array<std::pair<uint32_t, double>, kFew> items;
  auto end = items.begin();
  for (size_t i = 0; i < count; ++i) {
    if (takes_part(i)) *end++ = {key(i), size(i)};
  }
  std::sort(items.begin(), end, [](const auto& a, const auto& b) { return a.first > b.first; });
  Border border{0, target};
  for (auto at = items.begin(); at != end;) {
    border.key = at->first;
    double sum = 0;
    for (; at != end && at->first == border.key; ++at) sum += at->second;
    if (sum >= border.left) return border;
    border.left -= sum;
  }
  border.left = std::numeric_limits<double>::infinity();  // rounding: all that is here is taken
  return border;
}

// Three digits of the key, from the highest: in each the border's digit is found from sums. Only items for which
// takes_part(i) holds are looked at.
template <class Key, class Size, class TakesPart>
Border find_border(size_t count, double target, Key key, Size size, TakesPart takes_part) {
  if (count <= kFew) return find_border_of_few(count, target, key, size, takes_part);
  constexpr uint32_t kDigits = 2048;
  Border border{0, target};
  uint32_t known = 0;  // the bits of border.key that are found
  for (const int shift : {21, 10, 0}) {
    std::array<double, kDigits> sums{};
    for (size_t i = 0; i < count; ++i) {
      if (!takes_part(i)) continue;
      const uint32_t bits = key(i);
      if ((bits & known) == border.key) sums[(bits >> shift) % kDigits] += size(i);
    }
    uint32_t found = 0;
    bool reached = false;
    for (uint32_t digit = kDigits; digit-- > 0 && !reached;) {
      if (sums[digit] == 0) continue;
      found = digit;
      reached = sums[digit] >= border.left;
      if (!reached) border.left -= sums[digit];
    }
    if (!reached) border.left = std::numeric_limits<double>::infinity();  // rounding: all that is here is taken
    border.key |= found << shift;
    known |= (kDigits - 1) << shift;
  }
  return border;
}

// Whether an item is on the kept side; items are to be asked about in the order of their indices.
bool take(Border& border, uint32_t bits, double size) {
  if (bits != border.key) return bits > border.key;
  const bool taken = border.left > 0;
  border.left -= size;
  return taken;
}

// Several lanes at a time, here and below: one alone would wait for each step. NaN is never the larger one.
float largest(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> best;
  best.fill(-kInfinity);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      best[lane] = value > best[lane] ? value : best[lane];
    }
  }
  for (; i < values.size(); ++i) best[0] = values[i] > best[0] ? values[i] : best[0];
  return *std::max_element(best.begin(), best.end());
}

// The largest value of each column, where the values stand in rows of kColumns: no lane waits for another.
constexpr size_t kColumns = 1024;

void column_maxima(std::span<const float> values, std::array<float, kColumns>& maxima) {
  maxima.fill(-kInfinity);
  for (size_t row = 0; row < values.size(); row += kColumns) {
    const size_t count = std::min(kColumns, values.size() - row);
    for (size_t i = 0; i < count; ++i) {
      const float value = values[row + i];
      maxima[i] = value > maxima[i] ? value : maxima[i];
    }
  }
}

// Indices, in ascending order, among which the k largest are; none where that would be more than there is room for.
// Each column's maximum is one of the values, so at least k of them reach the k-th largest maximum, and only columns
// whose maximum does have such values: nearly all of a large vocabulary is looked at once.
std::span<const uint32_t> find_candidates(std::span<const float> values, size_t k, std::span<uint32_t> room) {
  if (k > kColumns / 2 || values.size() < 4 * kColumns) return {};
  std::array<float, kColumns> maxima, order;
  column_maxima(values, maxima);
  order = maxima;
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k - 1), order.end(), std::greater<>());
  const float bound = order[k - 1];
  size_t found = 0;
  for (size_t column = 0; column < kColumns; ++column) {
    if (!(maxima[column] >= bound)) continue;
    for (size_t i = column; i < values.size(); i += kColumns) {
      if (!(values[i] >= bound)) continue;  // NaN is none
      if (found == room.size()) return {};
      room[found++] = static_cast<uint32_t>(i);
    }
  }
  std::sort(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(found));
  return room.first(found);
}

// e^x for x <= 0, within two units in the last place; 0 below the normal numbers and where `counts` is false. The
// library's function takes one value at a time, which is most of what a token of a large vocabulary costs; this one has
// no branches, so that the compiler turns it into vectors.
inline float exp_of_negative(float x, bool counts) {
  constexpr float kLog2e = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves no room for a fraction
  constexpr float kLeast = -87.0f;
  const float bounded = x > kLeast ? x : kLeast;
  const float shifted = bounded * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (bounded - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1;
  // The low bits of `shifted` are n, which belongs into the exponent.
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound)) << 23;
  const uint32_t kept = 0u - static_cast<uint32_t>(static_cast<int>(counts) & static_cast<int>(x > kLeast));
  return std::bit_cast<float>((std::bit_cast<uint32_t>(p) + exponent) & kept);
}

double total_of(std::span<const float> weights) {
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= weights.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights[i + lane];
  }
  for (; i < weights.size(); ++i) sums[0] += weights[i];
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Keeps the weights of the largest keys that make up `target` and zeroes the others.
template <class Key>
double keep_mass(std::span<float> weights, double target, Key key) {
  const auto size = [&](size_t i) { return double(weights[i]); };
  // Above 0, so that the first one is taken in any case.
  Border border = find_border(weights.size(), std::max(target, 1e-300), key, size, [](size_t) { return true; });
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = take(border, key(i), weights[i]) ? weights[i] : 0;
  return total_of(weights);
}

}  // namespace

size_t gather_top_k(std::span<const float> values, size_t k, float* kept, int32_t* kept_index) {
  std::array<uint32_t, 2048> room;
  const auto candidates = find_candidates(values, k, room);
  const size_t count = candidates.empty() ? values.size() : candidates.size();
  const auto index = [&](size_t i) { return candidates.empty() ? i : candidates[i]; };
  const auto key = [&](size_t i) { return ordered_bits(values[index(i)]); };
  const auto is_number = [&](size_t i) { return !std::isnan(values[index(i)]); };
  const auto one = [](size_t) { return 1.0; };
  Border border = find_border(count, double(k), key, one, is_number);
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!is_number(i) || !take(border, key(i), 1)) continue;
    kept[found] = values[index(i)];
    kept_index[found++] = static_cast<int32_t>(index(i));
  }
  return found;
}

int32_t likeliest(std::span<const float> logits) {
  const float best = largest(logits);
  if (!(best > -kInfinity)) return -1;
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

double to_weights(std::span<float> logits, float temperature) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float best = std::min(largest(logits), kLargest), scale = 1 / temperature;
  for (float& x : logits) {
    const float distance = ((x < kLargest ? x : kLargest) - best) * scale;
    x = exp_of_negative(distance, x > -kInfinity);  // false for NaN
  }
  return total_of(logits);
}

double keep_top_p(std::span<float> weights, double total, float p) {
  return keep_mass(weights, p * total, [&](size_t i) { return ordered_bits(weights[i]); });
}

double keep_min_p(std::span<float> weights, float p) {
  for (float& weight : weights) weight = weight >= p ? weight : 0;  // the largest is 1
  return total_of(weights);
}

double keep_typical(std::span<float> weights, double total, float p, std::span<float> logs) {
  double expected = 0;  // the logarithm of a typical weight: its mean, by probability
  for (size_t i = 0; i < weights.size(); ++i) {
    logs[i] = std::log(weights[i]);
    if (weights[i] > 0) expected += weights[i] / total * logs[i];
  }
  const auto middle = static_cast<float>(expected);
  return keep_mass(weights, p * total, [&](size_t i) { return ~ordered_bits(std::fabs(logs[i] - middle)); });
}

size_t draw(std::span<const float> weights, double total, double unit) {
  constexpr size_t kBlock = 256;
  double target = unit * total;
  size_t begin = 0, last = 0;
  for (; begin < weights.size(); begin += kBlock) {  // whole blocks first, by their totals
    const auto block = weights.subspan(begin, std::min(kBlock, weights.size() - begin));
    const double mass = total_of(block);
    if (mass > 0) last = begin;
    if (target < mass) break;
    target -= mass;
  }
  // Rounding may carry the target past the end, of the block or of all: the last one with a weight is meant.
  const size_t first = std::min(begin, last);
  size_t chosen = first;
  for (size_t i = first; i < std::min(first + kBlock, weights.size()); ++i) {
    if (weights[i] == 0) continue;
    chosen = i;
    if (begin == first && target < weights[i]) break;
    target -= weights[i];
  }
  return chosen;
}

}  // namespace millrace
