// Scores and weighted sums for the few queries of a decode over f16 keys and values, with f16 products summed in f32
// (FMLAL): no conversions, and half the loads. Queries and weights are rounded to f16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// scores[h * kScoreStride + t] of n contiguous keys; values up to the next multiple of eight are undefined. q is
// [heads, dim] in f16. dim is a multiple of eight, heads is 1 to 4.
void score_halves(const std::byte* keys, int n, const uint16_t* q, int heads, int64_t dim, float* scores);

// sums[h * stride + i] += sum over t of weights[h * kScoreStride + t] * values[t][i].
void add_halves(const std::byte* values, int n, const float* weights, int heads, int64_t dim, int64_t stride,
                float* sums);

}  // namespace millrace
