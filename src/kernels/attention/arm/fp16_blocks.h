// Products of blocks of query vectors with f16 keys and values in place, in f16 arithmetic, for prompts on cores
// without wider instructions (many_halves-inl.h). f16 sums run over a whole head for scores and over 64 positions for
// values, then f32. An overflow yields infinity or NaN; the caller checks for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

constexpr int kBlockVectors = 16, kBlockPositions = 8;  // query vectors and positions are multiples of these

// scores[position][vector] of `count` keys for q[element][vector]; dim is a multiple of eight.
void score_block_fp16(const std::byte* const* keys, int count, const uint16_t* q, int64_t vectors, int64_t dim,
                      uint16_t* scores);

// Largest sum of squares of n keys; infinite or NaN if it exceeds the range of f16.
float largest_norm_fp16(const std::byte* const* keys, int n, int64_t dim);

// Smallest and largest score of each vector over n positions; NaN if any score is NaN.
void score_range_fp16(const uint16_t* scores, int n, int64_t vectors, float* least, float* most);

// sums[vector][element] += sum over n positions of weights[position][vector] * values[position][element].
void add_block_fp16(const std::byte* const* values, int n, const uint16_t* weights, int64_t vectors, int64_t dim,
                    float* sums, int64_t stride);

}  // namespace millrace
