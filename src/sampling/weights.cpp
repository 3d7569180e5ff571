#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "sampling/block_maxima.h"
#include "sampling/border.h"

namespace millrace {
namespace {

// e^x for x <= 0, within two units in the last place; 0 below the normal range and if `counts` is false. Without
// branches, so that the compiler vectorizes it: the scalar function of the C library would dominate the time of
// sampling.
inline float exp_of_negative(float x, bool counts) {
  constexpr float kLog2e = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
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
  // The low bits of `shifted` are n: add them to the exponent of p.
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound)) << 23;
  const uint32_t kept = 0u - static_cast<uint32_t>(static_cast<int>(counts) & static_cast<int>(x > kLeast));
  return std::bit_cast<float>((std::bit_cast<uint32_t>(p) + exponent) & kept);
}

// `best` is the largest logit. Not inline: the compiler does not vectorize it inside of another function.
[[gnu::noinline]] void turn_to_weights(std::span<float> logits, float best, float scale) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (float& logit : logits) {
    const float x = logit, distance = ((x < kLargest ? x : kLargest) - best) * scale;
    logit = exp_of_negative(distance, x > -kInfinity);  // false for NaN
  }
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

// Keeps the weights with the largest keys up to a sum of `target` and sets the others to 0.
template <class Key>
double keep_mass(std::span<float> weights, double target, Key key) {
  const auto size = [&](size_t i) { return double(weights[i]); };
  // A target above 0 keeps at least one weight.
  Border border = find_border(weights.size(), std::max(target, 1e-300), key, size, [](size_t) { return true; });
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = take(border, key(i), weights[i]) ? weights[i] : 0;
  return total_of(weights);
}

}  // namespace

double to_weights(std::span<float> logits, float temperature, ThreadPool* helpers) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const int32_t first = likeliest(logits, helpers);
  const float best = first < 0 ? -kInfinity : std::min(logits[static_cast<size_t>(first)], kLargest);
  for_blocks(blocks_of(logits), helpers, [&](int64_t begin, int64_t end) {
    const auto from = static_cast<size_t>(begin * kBlock);
    const auto to = std::min(static_cast<size_t>(end * kBlock), logits.size());
    turn_to_weights(logits.subspan(from, to - from), best, 1 / temperature);
  });
  return total_of(logits);
}

double keep_top_p(std::span<float> weights, double total, float p) {
  return keep_mass(weights, p * total, [&](size_t i) { return ordered_bits(weights[i]); });
}

double keep_min_p(std::span<float> weights, float p) {
  for (float& weight : weights) weight = weight >= p ? weight : 0;  // the largest weight is 1
  return total_of(weights);
}

double keep_typical(std::span<float> weights, double total, float p, std::span<float> logs) {
  double expected = 0;  // expected logarithm of a weight
  for (size_t i = 0; i < weights.size(); ++i) {
    logs[i] = std::log(weights[i]);
    if (weights[i] > 0) expected += weights[i] / total * logs[i];
  }
  const auto middle = static_cast<float>(expected);
  return keep_mass(weights, p * total, [&](size_t i) { return ~ordered_bits(std::fabs(logs[i] - middle)); });
}

size_t draw(std::span<const float> weights, double total, double unit) {
  constexpr size_t kShare = 256;
  double target = unit * total;
  size_t begin = 0, last = 0;
  for (; begin < weights.size(); begin += kShare) {  // skips whole blocks by their totals
    const auto block = weights.subspan(begin, std::min(kShare, weights.size() - begin));
    const double mass = total_of(block);
    if (mass > 0) last = begin;
    if (target < mass) break;
    target -= mass;
  }
  // Rounding may carry the target past the end of the block or of all weights: then take the last index with a weight.
  const size_t first = std::min(begin, last);
  size_t chosen = first;
  for (size_t i = first; i < std::min(first + kShare, weights.size()); ++i) {
    if (weights[i] == 0) continue;
    chosen = i;
    if (begin == first && target < weights[i]) break;
    target -= weights[i];
  }
  return chosen;
}

}  // namespace millrace
