// Scores and weighted sums for the few queries of a decode over f16 keys and values, with products of halves that are
// added up in f32 (FMLAL): no conversion, and half as many loads. Queries and weights are rounded to f16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// scores[h * kScoreStride + t] of n keys that lie one after the other, and as they may be up to the next multiple of
// eight; q is [heads, dim] in f16. dim is a multiple of eight, and there are one to four heads.
void score_halves(const std::byte* keys, int n, const uint16_t* q, int heads, int64_t dim, float* scores);

// sums[h * stride + i] += the sum over t of weights[h * kScoreStride + t] * values[t][i].
void add_halves(const std::byte* values, int n, const float* weights, int heads, int64_t dim, int64_t stride,
                float* sums);

}  // namespace millrace
