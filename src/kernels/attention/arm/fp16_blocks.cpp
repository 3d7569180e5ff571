#include "kernels/attention/arm/fp16_blocks.h"

#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

MR_BEGIN_TARGET("arch=armv8.2-a+fp16", "fullfp16")
namespace millrace {
namespace {

// Inline assembly for the reasons given in half_products.cpp.
template <int lane>
inline void add_products(uint16x8_t& sum, uint16x8_t a, uint16x8_t b) {
  asm volatile("fmla %0.8h, %1.8h, %2.h[%3]" : "+w"(sum) : "w"(a), "x"(b), "i"(lane));
}
inline void add_squares(uint16x8_t& sum, uint16x8_t a) { asm("fmla %0.8h, %1.8h, %1.8h" : "+w"(sum) : "w"(a)); }
inline uint16x8_t smaller(uint16x8_t a, uint16x8_t b) {
  asm("fmin %0.8h, %0.8h, %1.8h" : "+w"(a) : "w"(b));
  return a;
}
inline uint16x8_t larger(uint16x8_t a, uint16x8_t b) {
  asm("fmax %0.8h, %0.8h, %1.8h" : "+w"(a) : "w"(b));
  return a;
}

inline uint16x8_t load8(const void* p) { return vld1q_u16(static_cast<const uint16_t*>(p)); }
inline float32x4_t low_f32(uint16x8_t v) { return vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u16(v))); }
inline float32x4_t high_f32(uint16x8_t v) { return vcvt_high_f32_f16(vreinterpretq_f16_u16(v)); }

constexpr int kRows = 8;

// Multiplies element `lane` of eight keys with that element of 16 query vectors.
template <int lane>
inline void add_element(const uint16_t* q, const uint16x8_t (&keys)[kRows], uint16x8_t (&acc)[kRows][2]) {
  MR_UNROLL for (int j = 0; j < 2; ++j) {
    const uint16x8_t x = load8(q + 8 * j);
    MR_UNROLL for (int t = 0; t < kRows; ++t) add_products<lane>(acc[t][j], x, keys[t]);
  }
}

// noinline, here and below: inside more loops GCC would keep the accumulators in memory.
__attribute__((noinline)) void score_tile(const std::byte* const* keys, const uint16_t* q, int64_t vectors, int64_t dim,
                                          uint16_t* scores) {
  uint16x8_t acc[kRows][2];
  MR_UNROLL for (int t = 0; t < kRows; ++t) acc[t][0] = acc[t][1] = vdupq_n_u16(0);
  for (int64_t i = 0; i < dim; i += 8, q += 8 * vectors) {
    uint16x8_t eight[kRows];
    MR_UNROLL for (int t = 0; t < kRows; ++t) eight[t] = load8(keys[t] + 2 * i);
    add_element<0>(q, eight, acc);
    add_element<1>(q + vectors, eight, acc);
    add_element<2>(q + 2 * vectors, eight, acc);
    add_element<3>(q + 3 * vectors, eight, acc);
    add_element<4>(q + 4 * vectors, eight, acc);
    add_element<5>(q + 5 * vectors, eight, acc);
    add_element<6>(q + 6 * vectors, eight, acc);
    add_element<7>(q + 7 * vectors, eight, acc);
  }
  MR_UNROLL for (int t = 0; t < kRows; ++t) {
    vst1q_u16(scores + t * vectors, acc[t][0]);
    vst1q_u16(scores + t * vectors + 8, acc[t][1]);
  }
}

// Eight query vectors, elements [i, i + 8 * eights) of the values.
template <int eights>
__attribute__((noinline)) void add_tile(const std::byte* const* values, int n, int64_t i, const uint16_t* weights,
                                        int64_t vectors, float* sums, int64_t stride) {
  uint16x8_t acc[kRows][eights];
  MR_UNROLL for (int r = 0; r < kRows; ++r) { MR_UNROLL for (int j = 0; j < eights; ++j) acc[r][j] = vdupq_n_u16(0); }
  for (int t = 0; t < n; ++t, weights += vectors) {
    const uint16x8_t w = load8(weights);
    MR_UNROLL for (int j = 0; j < eights; ++j) {
      const uint16x8_t v = load8(values[t] + 2 * i + 16 * j);
      add_products<0>(acc[0][j], v, w);
      add_products<1>(acc[1][j], v, w);
      add_products<2>(acc[2][j], v, w);
      add_products<3>(acc[3][j], v, w);
      add_products<4>(acc[4][j], v, w);
      add_products<5>(acc[5][j], v, w);
      add_products<6>(acc[6][j], v, w);
      add_products<7>(acc[7][j], v, w);
    }
  }
  MR_UNROLL for (int r = 0; r < kRows; ++r) {
    MR_UNROLL for (int j = 0; j < eights; ++j) {
      float* to = sums + r * stride + i + 8 * j;
      vst1q_f32(to, vaddq_f32(vld1q_f32(to), low_f32(acc[r][j])));
      vst1q_f32(to + 4, vaddq_f32(vld1q_f32(to + 4), high_f32(acc[r][j])));
    }
  }
}

}  // namespace

void score_block_fp16(const std::byte* const* keys, int count, const uint16_t* q, int64_t vectors, int64_t dim,
                      uint16_t* scores) {
  for (int t = 0; t < count; t += kBlockPositions) {
    for (int64_t v = 0; v < vectors; v += kBlockVectors) {
      score_tile(keys + t, q + v, vectors, dim, scores + t * vectors + v);
    }
  }
}

float largest_norm_fp16(const std::byte* const* keys, int n, int64_t dim) {
  float32x4_t largest = vdupq_n_f32(0);
  for (int t = 0; t < n; ++t) {
    uint16x8_t sum = vdupq_n_u16(0);
    for (int64_t i = 0; i < dim; i += 8) add_squares(sum, load8(keys[t] + 2 * i));
    largest = vmaxq_f32(largest, vdupq_n_f32(vaddvq_f32(vaddq_f32(low_f32(sum), high_f32(sum)))));
  }
  return vgetq_lane_f32(largest, 0);
}

void score_range_fp16(const uint16_t* scores, int n, int64_t vectors, float* least, float* most) {
  for (int64_t v = 0; v < vectors; v += 16) {
    uint16x8_t low[2] = {load8(scores + v), load8(scores + v + 8)}, high[2] = {low[0], low[1]};
    for (int t = 1; t < n; ++t) {
      MR_UNROLL for (int j = 0; j < 2; ++j) {
        const uint16x8_t x = load8(scores + t * vectors + v + 8 * j);
        low[j] = smaller(low[j], x);
        high[j] = larger(high[j], x);
      }
    }
    MR_UNROLL for (int j = 0; j < 2; ++j) {
      vst1q_f32(least + v + 8 * j, low_f32(low[j]));
      vst1q_f32(least + v + 8 * j + 4, high_f32(low[j]));
      vst1q_f32(most + v + 8 * j, low_f32(high[j]));
      vst1q_f32(most + v + 8 * j + 4, high_f32(high[j]));
    }
  }
}

void add_block_fp16(const std::byte* const* values, int n, const uint16_t* weights, int64_t vectors, int64_t dim,
                    float* sums, int64_t stride) {
  for (int64_t v = 0; v < vectors; v += kRows) {
    int64_t i = 0;
    for (; i + 16 <= dim; i += 16) add_tile<2>(values, n, i, weights + v, vectors, sums + v * stride, stride);
    for (; i < dim; i += 8) add_tile<1>(values, n, i, weights + v, vectors, sums + v * stride, stride);
  }
}

}  // namespace millrace
MR_END_TARGET
