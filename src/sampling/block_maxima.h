// Maxima of blocks of floats, for finding the largest of many values in one vectorized pass.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/thread_pool.h"
#include "sampling/selection.h"

namespace millrace {

// Explicit vectors: the compiler does not vectorize a maximum that ignores NaN, and scalar code waits for the latency
// of each comparison.
using Four __attribute__((vector_size(4 * sizeof(float)))) = float;

// Ignores NaN in `other`.
template <class Value>
inline Value larger(Value best, Value other) {
  return other > best ? other : best;
}

inline Four load_four(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof(four));
  return four;
}

inline float largest_of(Four four) {  // without branches, which would be unpredictable
  four = larger(four, __builtin_shufflevector(four, four, 2, 3, 0, 1));
  return larger(four, __builtin_shufflevector(four, four, 1, 0, 3, 2))[0];
}

inline float largest(std::span<const float> values) {
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

// Values per block, and the most blocks that the fixed arrays hold (a vocabulary of 512k).
inline constexpr int64_t kBlock = 64, kMostBlocks = 8192;
inline constexpr int64_t kLine = 16;  // floats per cache line

inline int64_t blocks_of(std::span<const float> values) { return (std::ssize(values) + kBlock - 1) / kBlock; }

template <class Value>
std::span<Value> block_of(std::span<Value> values, int64_t i) {
  const auto begin = static_cast<size_t>(i * kBlock);
  return values.subspan(begin, std::min<size_t>(kBlock, values.size() - begin));
}

// Calls body(begin, end) over ranges of blocks. The helpers computed the logits, so most values are in their caches.
template <class Body>
void for_blocks(int64_t blocks, ThreadPool* helpers, const Body& body) {
  constexpr int64_t kAtOnce = 32;
  if (helpers == nullptr) return body(0, blocks);
  helpers->parallel_for(blocks, kAtOnce, body);
}

using BlockMaxima = std::array<float, kMostBlocks>;

inline std::span<const float> block_maxima(std::span<const float> values, ThreadPool* helpers, BlockMaxima& room) {
  const int64_t blocks = blocks_of(values);
  for_blocks(blocks, helpers, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) room[static_cast<size_t>(i)] = largest(block_of(values, i));
  });
  return std::span(room).first(static_cast<size_t>(blocks));
}

}  // namespace millrace
