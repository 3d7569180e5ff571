// Products of blocks of query vectors with f16 keys and values as they lie in the cache, in f16 arithmetic, for the
// prompts of cores that have no wider instructions (many_halves-inl.h). Chains of sums are as long as a head for scores
// and 64 positions for values, then f32. What overflows ends as an infinity or a NaN, for which the caller looks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

constexpr int kBlockVectors = 16, kBlockPositions = 8;  // query vectors and positions come in multiples of these

// scores[position][vector] of `count` keys for q[element][vector]; dim is a multiple of eight.
void score_block_fp16(const std::byte* const* keys, int count, const uint16_t* q, int64_t vectors, int64_t dim,
                      uint16_t* scores);

// The largest sum of squares of n keys; infinite or NaN where one is beyond the range of f16.
float largest_norm_fp16(const std::byte* const* keys, int n, int64_t dim);

// The smallest and the largest score of each vector over n positions, NaN where there is one.
void score_range_fp16(const uint16_t* scores, int n, int64_t vectors, float* least, float* most);

// sums[vector][element] += the sum over n positions of weights[position][vector] * values[position][element].
void add_block_fp16(const std::byte* const* values, int n, const uint16_t* weights, int64_t vectors, int64_t dim,
                    float* sums, int64_t stride);

}  // namespace millrace
