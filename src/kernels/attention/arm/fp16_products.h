// Scores and weighted sums for the few queries of a decode over f16 keys and values, in f16 arithmetic: eight products
// an instruction, on every core since Neoverse N1. Chains are short: 64 elements of a score, 16 positions of a sum,
// then f32. What overflows ends as an infinity or a NaN, for which the caller looks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// The longest chain over positions; weights of at most one and values of at most 4094 cannot overflow in it.
constexpr int kFp16Chain = 16;

// As score_halves and add_halves.
void score_fp16(const std::byte* keys, int n, const uint16_t* q, int heads, int64_t dim, float* scores);
void add_fp16(const std::byte* values, int n, const float* weights, int heads, int64_t dim, int64_t stride,
              float* sums);

}  // namespace millrace
