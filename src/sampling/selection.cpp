#include "sampling/selection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/thread_pool.h"

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

struct Item {
  uint32_t key;
  double size;
};

// Of few items: they are put in order.
constexpr size_t kFew = 128;
[[gnu::noinline]] Border find_border_of_few(std::span<Item> items, double target) {
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.key > b.key; });
  Border border{0, target};
  for (auto at = items.begin(); at != items.end();) {
    border.key = at->key;
    double sum = 0;
    for (; at != items.end() && at->key == border.key; ++at) sum += at->size;
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
  if (count <= kFew) {
    std::array<Item, kFew> items;
    size_t found = 0;
    for (size_t i = 0; i < count; ++i) {
      if (takes_part(i)) items[found++] = {key(i), size(i)};
    }
    return find_border_of_few(std::span(items).first(found), target);
  }
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

// Several values at a time, here and below: one alone would wait for each step. The compiler finds the vectors of other
// loops by itself, but not these.
using Four __attribute__((vector_size(4 * sizeof(float)))) = float;

// NaN is never the larger one.
template <class Value>
inline Value larger(Value best, Value other) {
  return other > best ? other : best;
}

inline Four load_four(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof(four));
  return four;
}

inline float largest_of(Four four) {  // without branches: nobody could predict them
  four = larger(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  return larger(four, __builtin_shufflevector(four, four, 1, 0, 3, 2))[0];
}

float largest(std::span<const float> values) {
  const Four none = Four{} - kInfinity;
  Four a = none, b = none, c = none, d = none;
  const float* at = values.data();
  const float* const end = at + values.size();
  for (; at + 16 <= end; at += 16) {
    a = larger(a, load_four(at));
    b = larger(b, load_four(at + 4));
    c = larger(c, load_four(at + 8));
    d = larger(d, load_four(at + 12));
  }
  float result = largest_of(larger(larger(a, b), larger(c, d)));
  for (; at < end; ++at) result = larger(result, *at);
  return result;
}

// Numbers are looked at in blocks of so many neighbours.
constexpr int64_t kBlock = 64, kMostBlocks = 8192;
constexpr int64_t kLine = 16;  // what is fetched at once

int64_t blocks_of(std::span<const float> values) { return (std::ssize(values) + kBlock - 1) / kBlock; }

template <class Value>
std::span<Value> block_of(std::span<Value> values, int64_t i) {
  const auto begin = static_cast<size_t>(i * kBlock);
  return values.subspan(begin, std::min<size_t>(kBlock, values.size() - begin));
}

// body(begin, end) for all blocks: the helpers have most of the values in their caches, for they computed them.
template <class Body>
void for_blocks(int64_t blocks, ThreadPool* helpers, const Body& body) {
  constexpr int64_t kAtOnce = 32;
  if (helpers == nullptr) return body(0, blocks);
  helpers->parallel_for(blocks, kAtOnce, body);
}

using BlockMaxima = std::array<float, kMostBlocks>;

std::span<const float> block_maxima(std::span<const float> values, ThreadPool* helpers, BlockMaxima& room) {
  const int64_t blocks = blocks_of(values);
  for_blocks(blocks, helpers, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) room[static_cast<size_t>(i)] = largest(block_of(values, i));
  });
  return std::span(room).first(static_cast<size_t>(blocks));
}

// Not inline: between two steps of a model nothing is in the caches any more, and code that has to be
// fetched takes longer than what it does, so that it should be there once.
[[gnu::noinline]] float kth_largest(std::span<float> values, size_t k) {
  const auto kth = values.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(values.begin(), kth, values.end(), std::greater<>());
  return *kth;
}

// A number that at least k of the values reach, from the maxima of their blocks: the k-th largest where of several
// blocks the largest counts alone, for few are put in order sooner. Those are far from each other: neighbours in a
// vocabulary are likely together.
float reached_by(std::span<const float> maxima, size_t k) {
  constexpr size_t kLeft = 2;  // maxima for each of the k
  const size_t groups = std::min(kLeft * k, maxima.size());
  BlockMaxima order;
  std::copy_n(maxima.begin(), groups, order.begin());
  for (size_t from = groups; from < maxima.size(); from += groups) {
    const size_t count = std::min(groups, maxima.size() - from);
    for (size_t i = 0; i < count; ++i) order[i] = larger(order[i], maxima[from + i]);
  }
  return kth_largest(std::span(order).first(groups), k);
}

// Indices, in ascending order, among which the k largest are; none where that would be more than there is room for.
// Each block's maximum is one of the values, so only blocks whose maximum does reach what k values do have such values:
// nearly all of a large vocabulary is looked at once.
std::span<const uint32_t> find_candidates(std::span<const float> values, size_t k, ThreadPool* helpers,
                                          std::span<uint32_t> room) {
  const int64_t blocks = blocks_of(values);
  if (static_cast<int64_t>(k) > blocks / 2 || blocks > kMostBlocks) return {};
  BlockMaxima room_for_maxima;
  const std::span<const float> maxima = block_maxima(values, helpers, room_for_maxima);
  const float border = reached_by(maxima, k);
  if (border == -kInfinity) return {};  // the maximum of a block of NaN is none of its values
  std::array<uint32_t, kMostBlocks> chosen;
  size_t chosen_count = 0, found = 0;
  for (int64_t i = 0; i < blocks; ++i) {
    if (!(maxima[static_cast<size_t>(i)] >= border)) continue;
    chosen[chosen_count++] = static_cast<uint32_t>(i);
    // Half of them are in another core's caches: all are fetched at once.
    for (int64_t at = i * kBlock; at < (i + 1) * kBlock; at += kLine) __builtin_prefetch(values.data() + at);
  }
  for (const uint32_t block : std::span(chosen).first(chosen_count)) {
    const auto begin = static_cast<size_t>(block) * kBlock, end = std::min<size_t>(begin + kBlock, values.size());
    for (size_t from = begin; from < end; from += kLine) {
      const size_t to = std::min(from + kLine, end);
      if (!(largest(values.subspan(from, to - from)) >= border)) continue;
      if (found + kLine > room.size()) return {};
      for (size_t i = from; i < to; ++i) {
        room[found] = static_cast<uint32_t>(i);
        found += values[i] >= border ? 1 : 0;  // NaN is none
      }
    }
  }
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

// The weights of logits of which `best` is the largest. Not inline: as a part of another function it is no vectors.
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

size_t gather_top_k(std::span<const float> values, size_t k, float* kept, int32_t* kept_index, ThreadPool* helpers) {
  std::array<uint32_t, 2048> room;
  size_t found = 0;
  const auto keep = [&](size_t i) {
    kept[found] = values[i];
    kept_index[found++] = static_cast<int32_t>(i);
  };
  const auto candidates = find_candidates(values, k, helpers, room);
  if (!candidates.empty()) {
    std::array<float, room.size()> room_for_order;
    const std::span<float> order = std::span(room_for_order).first(candidates.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = values[candidates[i]];
    const float least = kth_largest(order, k);
    int64_t equal =
        static_cast<int64_t>(k) - std::count_if(order.begin(), order.end(), [&](float x) { return x > least; });
    for (const uint32_t i : candidates) {
      if (values[i] > least || (values[i] == least && equal-- > 0)) keep(i);
    }
    return found;
  }
  const auto key = [&](size_t i) { return ordered_bits(values[i]); };
  const auto is_number = [&](size_t i) { return !std::isnan(values[i]); };
  Border border = find_border(
      values.size(), double(k), key, [](size_t) { return 1.0; }, is_number);
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_number(i) && take(border, key(i), 1)) keep(i);
  }
  return found;
}

int32_t likeliest(std::span<const float> logits, ThreadPool* helpers) {
  BlockMaxima room;
  std::span<const float> where = logits;
  size_t begin = 0;
  if (blocks_of(logits) <= kMostBlocks) {
    const auto maxima = block_maxima(logits, helpers, room);
    const auto block = std::find(maxima.begin(), maxima.end(), largest(maxima)) - maxima.begin();
    where = block_of(logits, block);
    begin = static_cast<size_t>(block * kBlock);
  }
  const float best = largest(where);
  if (!(best > -kInfinity)) return -1;
  return static_cast<int32_t>(begin + static_cast<size_t>(std::find(where.begin(), where.end(), best) - where.begin()));
}

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
  constexpr size_t kShare = 256;
  double target = unit * total;
  size_t begin = 0, last = 0;
  for (; begin < weights.size(); begin += kShare) {  // whole blocks first, by their totals
    const auto block = weights.subspan(begin, std::min(kShare, weights.size() - begin));
    const double mass = total_of(block);
    if (mass > 0) last = begin;
    if (target < mass) break;
    target -= mass;
  }
  // Rounding may carry the target past the end, of the block or of all: the last one with a weight is meant.
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
