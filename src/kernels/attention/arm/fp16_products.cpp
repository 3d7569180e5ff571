#include "kernels/attention/arm/fp16_products.h"

#include <algorithm>

#include "kernels/attention/workspace.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

MR_BEGIN_TARGET("arch=armv8.2-a+fp16", "fullfp16")
namespace millrace {
namespace {

// Inline assembly for the reasons given in half_products.cpp.
inline void add_products(uint16x8_t& sum, uint16x8_t a, uint16x8_t b) {
  asm volatile("fmla %0.8h, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
}
template <int lane>
inline void add_products(uint16x8_t& sum, uint16x8_t a, uint16x8_t b) {
  asm volatile("fmla %0.8h, %1.8h, %2.h[%3]" : "+w"(sum) : "w"(a), "x"(b), "i"(lane));
}
inline uint16x8_t add_neighbours(uint16x8_t a, uint16x8_t b) {
  uint16x8_t sums;
  asm("faddp %0.8h, %1.8h, %2.8h" : "=w"(sums) : "w"(a), "w"(b));
  return sums;
}

inline uint16x8_t load8(const void* p) { return vld1q_u16(static_cast<const uint16_t*>(p)); }
inline float32x4_t low_f32(uint16x8_t v) { return vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u16(v))); }
inline float32x4_t high_f32(uint16x8_t v) { return vcvt_high_f32_f16(vreinterpretq_f16_u16(v)); }

// Adds the products of elements [begin, end) to the scores of `positions` keys. noinline: inside more loops GCC would
// keep the accumulators in memory.
template <int heads, int positions>
__attribute__((noinline)) void score_some(const std::byte* const (&keys)[positions], const uint16_t* q, int64_t dim,
                                          int64_t begin, int64_t end, float* scores) {
  uint16x8_t acc[heads][positions];
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int t = 0; t < positions; ++t) acc[h][t] = vdupq_n_u16(0);
  }
  for (int64_t i = begin; i < end; i += 8) {
    uint16x8_t x[heads];
    MR_UNROLL for (int h = 0; h < heads; ++h) x[h] = load8(q + h * dim + i);
    MR_UNROLL for (int t = 0; t < positions; ++t) {
      const uint16x8_t k = load8(keys[t] + i * 2);
      MR_UNROLL for (int h = 0; h < heads; ++h) add_products(acc[h][t], k, x[h]);
    }
  }
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int t = 0; t < positions; t += 4) {
      const uint16x8_t low = add_neighbours(acc[h][t], acc[h][t + 1]),
                       high = add_neighbours(acc[h][t + 2], acc[h][t + 3]);
      const uint16x8_t quarters = add_neighbours(low, high);  // two per position
      const float32x4_t sums = vpaddq_f32(low_f32(quarters), high_f32(quarters));
      float* to = scores + h * kScoreStride + t;
      vst1q_f32(to, begin == 0 ? sums : vaddq_f32(vld1q_f32(to), sums));
    }
  }
}

template <int heads>
void score_rows(const std::byte* keys, int n, const uint16_t* q, int64_t dim, float* scores) {
  constexpr int kPositions = heads < 4 ? 8 : 4;  // as many accumulators as registers allow
  constexpr int64_t kElements = 64;
  for (int t = 0; t < n; t += kPositions) {
    const std::byte* rows[kPositions];
    for (int i = 0; i < kPositions; ++i) rows[i] = keys + std::min(t + i, n - 1) * dim * 2;
    for (int64_t begin = 0; begin < dim; begin += kElements) {
      score_some<heads, kPositions>(rows, q, dim, begin, std::min(dim, begin + kElements), scores + t);
    }
  }
}

// One position: multiplies its values with a lane of each head's weights.
template <int heads, int eights, int lane>
inline void add_row(const std::byte* values, const uint16x8_t (&w)[heads], uint16x8_t (&acc)[heads][eights]) {
  MR_UNROLL for (int j = 0; j < eights; ++j) {
    const uint16x8_t v = load8(values + j * 16);
    MR_UNROLL for (int h = 0; h < heads; ++h) add_products<lane>(acc[h][j], v, w[h]);
  }
}

// n <= kFp16Chain positions, elements [0, 8 * eights) of the sums.
template <int heads, int eights>
void add_chain(const std::byte* values, int n, const uint16_t* weights, int64_t row, int64_t stride, float* sums) {
  uint16x8_t acc[heads][eights];
  MR_UNROLL for (int h = 0; h < heads; ++h) { MR_UNROLL for (int j = 0; j < eights; ++j) acc[h][j] = vdupq_n_u16(0); }
  int t = 0;
  for (; t + 8 <= n; t += 8, values += 8 * row) {
    uint16x8_t w[heads];
    MR_UNROLL for (int h = 0; h < heads; ++h) w[h] = load8(weights + h * kKvTile + t);
    add_row<heads, eights, 0>(values, w, acc);
    add_row<heads, eights, 1>(values + row, w, acc);
    add_row<heads, eights, 2>(values + 2 * row, w, acc);
    add_row<heads, eights, 3>(values + 3 * row, w, acc);
    add_row<heads, eights, 4>(values + 4 * row, w, acc);
    add_row<heads, eights, 5>(values + 5 * row, w, acc);
    add_row<heads, eights, 6>(values + 6 * row, w, acc);
    add_row<heads, eights, 7>(values + 7 * row, w, acc);
  }
  for (; t < n; ++t, values += row) {
    uint16x8_t w[heads];
    MR_UNROLL for (int h = 0; h < heads; ++h) w[h] = vld1q_dup_u16(weights + h * kKvTile + t);
    add_row<heads, eights, 0>(values, w, acc);
  }
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int j = 0; j < eights; ++j) {
      float* to = sums + h * stride + 8 * j;
      vst1q_f32(to, vaddq_f32(vld1q_f32(to), low_f32(acc[h][j])));
      vst1q_f32(to + 4, vaddq_f32(vld1q_f32(to + 4), high_f32(acc[h][j])));
    }
  }
}

template <int heads>
void add_rows(const std::byte* values, int n, const float* weights, int64_t dim, int64_t stride, float* sums) {
  uint16_t rounded[heads * kKvTile];
  for (int h = 0; h < heads; ++h) {
    for (int t = 0; t < n; t += 4) {
      vst1_u16(rounded + h * kKvTile + t,
               vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(weights + h * kScoreStride + t))));
    }
  }
  constexpr int kEights = heads < 4 ? 8 : 4;  // as many accumulators as registers allow
  const int64_t row = dim * 2;
  for (int t = 0; t < n; t += kFp16Chain) {
    const std::byte* at = values + t * row;
    const int count = std::min(kFp16Chain, n - t);
    int64_t i = 0;
    for (; i + 8 * kEights <= dim; i += 8 * kEights) {
      add_chain<heads, kEights>(at + i * 2, count, rounded + t, row, stride, sums + i);
    }
    for (; i < dim; i += 8) add_chain<heads, 1>(at + i * 2, count, rounded + t, row, stride, sums + i);
  }
}

}  // namespace

void score_fp16(const std::byte* keys, int n, const uint16_t* q, int heads, int64_t dim, float* scores) {
  if (heads == 1) score_rows<1>(keys, n, q, dim, scores);
  if (heads == 2) score_rows<2>(keys, n, q, dim, scores);
  if (heads == 3) score_rows<3>(keys, n, q, dim, scores);
  if (heads == 4) score_rows<4>(keys, n, q, dim, scores);
}

void add_fp16(const std::byte* values, int n, const float* weights, int heads, int64_t dim, int64_t stride,
              float* sums) {
  if (heads == 1) add_rows<1>(values, n, weights, dim, stride, sums);
  if (heads == 2) add_rows<2>(values, n, weights, dim, stride, sums);
  if (heads == 3) add_rows<3>(values, n, weights, dim, stride, sums);
  if (heads == 4) add_rows<4>(values, n, weights, dim, stride, sums);
}

}  // namespace millrace
MR_END_TARGET
