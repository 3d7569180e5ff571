#include "kernels/attention/arm/half_products.h"

#include <algorithm>

#include "kernels/attention/workspace.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

MR_BEGIN_TARGET("arch=armv8.2-a+fp16+fp16fml", "fullfp16,fp16fml")
namespace millrace {
namespace {

// Inline assembly because GCC copies accumulators around its intrinsics, and clang 14 has them only under -march.
// volatile because GCC does not know the latency and would place all uses of one accumulator in a row.
inline void add_low(float32x4_t& sum, float16x8_t a, float16x8_t b) {
  asm volatile("fmlal %0.4s, %1.4h, %2.4h" : "+w"(sum) : "w"(a), "w"(b));
}
inline void add_high(float32x4_t& sum, float16x8_t a, float16x8_t b) {
  asm volatile("fmlal2 %0.4s, %1.4h, %2.4h" : "+w"(sum) : "w"(a), "w"(b));
}
template <int lane>
inline void add_low(float32x4_t& sum, float16x8_t a, float16x8_t b) {
  asm volatile("fmlal %0.4s, %1.4h, %2.h[%3]" : "+w"(sum) : "w"(a), "x"(b), "i"(lane));
}
template <int lane>
inline void add_high(float32x4_t& sum, float16x8_t a, float16x8_t b) {
  asm volatile("fmlal2 %0.4s, %1.4h, %2.h[%3]" : "+w"(sum) : "w"(a), "x"(b), "i"(lane));
}

inline float16x8_t load8(const void* p) { return vreinterpretq_f16_u16(vld1q_u16(static_cast<const uint16_t*>(p))); }

// `positions` keys at once: as many accumulators as registers allow.
template <int heads, int positions>
inline void score_some(const std::byte* const (&keys)[positions], const uint16_t* q, int64_t dim, float* scores) {
  float32x4_t acc[heads][positions];
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int t = 0; t < positions; ++t) acc[h][t] = vdupq_n_f32(0);
  }
  for (int64_t i = 0; i < dim; i += 8) {
    float16x8_t x[heads];
    MR_UNROLL for (int h = 0; h < heads; ++h) x[h] = load8(q + h * dim + i);
    MR_UNROLL for (int t = 0; t < positions; ++t) {
      const float16x8_t k = load8(keys[t] + i * 2);
      MR_UNROLL for (int h = 0; h < heads; ++h) add_low(acc[h][t], k, x[h]);
      MR_UNROLL for (int h = 0; h < heads; ++h) add_high(acc[h][t], k, x[h]);
    }
  }
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int t = 0; t < positions; t += 4) {
      const float32x4_t low = vpaddq_f32(acc[h][t], acc[h][t + 1]), high = vpaddq_f32(acc[h][t + 2], acc[h][t + 3]);
      vst1q_f32(scores + h * kScoreStride + t, vpaddq_f32(low, high));
    }
  }
}

template <int heads>
void score_rows(const std::byte* keys, int n, const uint16_t* q, int64_t dim, float* scores) {
  constexpr int kPositions = heads < 4 ? 8 : 4;
  for (int t = 0; t < n; t += kPositions) {
    const std::byte* rows[kPositions];
    for (int i = 0; i < kPositions; ++i) rows[i] = keys + std::min(t + i, n - 1) * dim * 2;
    score_some<heads, kPositions>(rows, q, dim, scores + t);
  }
}

// One position: multiplies its values with a lane of each head's weights.
template <int heads, int eights, int lane>
inline void add_row(const std::byte* values, const float16x8_t (&w)[heads], float32x4_t (&acc)[heads][2 * eights]) {
  MR_UNROLL for (int j = 0; j < eights; ++j) {
    const float16x8_t v = load8(values + j * 16);
    MR_UNROLL for (int h = 0; h < heads; ++h) {
      add_low<lane>(acc[h][2 * j], v, w[h]);
      add_high<lane>(acc[h][2 * j + 1], v, w[h]);
    }
  }
}

// Elements [i, i + 8 * eights) of the sums.
template <int heads, int eights>
void add_elements(const std::byte* values, int n, const uint16_t* weights, int64_t i, int64_t dim, int64_t stride,
                  float* sums) {
  float32x4_t acc[heads][2 * eights];
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int j = 0; j < 2 * eights; ++j) acc[h][j] = vld1q_f32(sums + h * stride + i + 4 * j);
  }
  const int64_t row = dim * 2;
  values += i * 2;
  int t = 0;
  for (; t + 8 <= n; t += 8, values += 8 * row) {
    float16x8_t w[heads];
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
    float16x8_t w[heads];
    MR_UNROLL for (int h = 0; h < heads; ++h) w[h] = vreinterpretq_f16_u16(vld1q_dup_u16(weights + h * kKvTile + t));
    add_row<heads, eights, 0>(values, w, acc);
  }
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int j = 0; j < 2 * eights; ++j) vst1q_f32(sums + h * stride + i + 4 * j, acc[h][j]);
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
  constexpr int kEights = heads < 4 ? 4 : 2;  // as many accumulators as registers allow
  int64_t i = 0;
  for (; i + 8 * kEights <= dim; i += 8 * kEights)
    add_elements<heads, kEights>(values, n, rounded, i, dim, stride, sums);
  for (; i < dim; i += 8) add_elements<heads, 1>(values, n, rounded, i, dim, stride, sums);
}

}  // namespace

void score_halves(const std::byte* keys, int n, const uint16_t* q, int heads, int64_t dim, float* scores) {
  if (heads == 1) score_rows<1>(keys, n, q, dim, scores);
  if (heads == 2) score_rows<2>(keys, n, q, dim, scores);
  if (heads == 3) score_rows<3>(keys, n, q, dim, scores);
  if (heads == 4) score_rows<4>(keys, n, q, dim, scores);
}

void add_halves(const std::byte* values, int n, const float* weights, int heads, int64_t dim, int64_t stride,
                float* sums) {
  if (heads == 1) add_rows<1>(values, n, weights, dim, stride, sums);
  if (heads == 2) add_rows<2>(values, n, weights, dim, stride, sums);
  if (heads == 3) add_rows<3>(values, n, weights, dim, stride, sums);
  if (heads == 4) add_rows<4>(values, n, weights, dim, stride, sums);
}

}  // namespace millrace
MR_END_TARGET
