// Scores and weighted sums for the few queries of a decode over f16 keys and values, in f16 arithmetic: eight products
// per instruction, on every core since Neoverse N1. f16 sums are short: 64 elements of a score, 16 positions of a
// weighted sum, then f32. An overflow yields infinity or NaN; the caller checks for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// Maximum number of positions per f16 sum. Weights of at most 1 and values of at most 4094 cannot overflow it.
constexpr int kFp16Chain = 16;

// As score_halves and add_halves.
void score_fp16(const std::byte* keys, int n, const uint16_t* q, int heads, int64_t dim, float* scores);
void add_fp16(const std::byte* values, int n, const float* weights, int heads, int64_t dim, int64_t stride,
              float* sums);

}  // namespace millrace
