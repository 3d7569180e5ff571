#include "kernels/attention/arm/bf16_products.h"

#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

MR_BEGIN_TARGET("arch=armv8.2-a+bf16", "bf16")
namespace millrace {
namespace {

// Inline assembly for the reasons given in half_products.cpp.
inline void add_products(float32x4_t& sum, uint16x8_t a, uint16x8_t b) {
  asm volatile("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
}

// Rounds eight numbers to nearest.
inline uint16x8_t round8(float32x4_t low, float32x4_t high) {
  uint16x8_t rounded;
  asm("bfcvtn %0.4h, %1.4s" : "=w"(rounded) : "w"(low));
  asm("bfcvtn2 %0.8h, %1.4s" : "+w"(rounded) : "w"(high));
  return rounded;
}

template <DType dtype>
inline uint16x8_t load8(const std::byte* p) {
  const uint16x8_t bits = vld1q_u16(reinterpret_cast<const uint16_t*>(p));
  if constexpr (dtype == DType::BF16) return bits;
  const float16x8_t halves = vreinterpretq_f16_u16(bits);
  return round8(vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves));
}

// Interleaves eight elements of two rows.
inline void store_pair(uint16x8_t first, uint16x8_t second, uint16_t* out) {
  const uint64x2_t a = vreinterpretq_u64_u16(first), b = vreinterpretq_u64_u16(second);
  vst1q_u16(out, vreinterpretq_u16_u64(vzip1q_u64(a, b)));
  vst1q_u16(out + 8, vreinterpretq_u16_u64(vzip2q_u64(a, b)));
}

template <DType dtype>
void pack_rows(const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out, int64_t pair_stride) {
  for (int64_t row = 0; row < count; row += 2, out += pair_stride) {
    for (int64_t i = 0; i < cols; i += 8) {
      store_pair(load8<dtype>(rows[row] + i * 2), load8<dtype>(rows[row + 1] + i * 2), out + i * 2);
    }
  }
}

template <DType dtype>
void pack_columns(const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out, int64_t pair_stride) {
  for (int64_t row = 0; row < count; row += 4) {
    for (int64_t i = 0; i < cols; i += 8) {
      const uint16x8_t a = load8<dtype>(rows[row] + i * 2), b = load8<dtype>(rows[row + 1] + i * 2);
      const uint16x8_t c = load8<dtype>(rows[row + 2] + i * 2), d = load8<dtype>(rows[row + 3] + i * 2);
      const uint16x8_t ac0 = vzip1q_u16(a, c), ac1 = vzip2q_u16(a, c), bd0 = vzip1q_u16(b, d), bd1 = vzip2q_u16(b, d);
      uint16_t* to = out + i / 2 * pair_stride + row * 2;
      vst1q_u16(to, vzip1q_u16(ac0, bd0));
      vst1q_u16(to + pair_stride, vzip2q_u16(ac0, bd0));
      vst1q_u16(to + 2 * pair_stride, vzip1q_u16(ac1, bd1));
      vst1q_u16(to + 3 * pair_stride, vzip2q_u16(ac1, bd1));
    }
  }
}

constexpr int kPairs = 4;  // a tile of 8 x 8 in 16 registers, two rows by two columns in each

inline float32x4_t zip_low(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
inline float32x4_t zip_high(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

template <bool accumulate>
inline void multiply_tile(const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride, int64_t depth,
                          float* c, int64_t c_stride) {
  float32x4_t acc[kPairs][kPairs];
  MR_UNROLL for (int i = 0; i < kPairs; ++i) {
    MR_UNROLL for (int j = 0; j < kPairs; j += 2) {
      const float* at = c + 2 * i * c_stride + 2 * j;
      const float32x4_t zero = vdupq_n_f32(0);
      const float32x4_t even = accumulate ? vld1q_f32(at) : zero, odd = accumulate ? vld1q_f32(at + c_stride) : zero;
      acc[i][j] = zip_low(even, odd);
      acc[i][j + 1] = zip_high(even, odd);
    }
  }
  for (int64_t k = 0; k < depth * 2; k += 8) {
    uint16x8_t x[kPairs], y[kPairs];
    MR_UNROLL for (int i = 0; i < kPairs; ++i) x[i] = vld1q_u16(a + i * a_stride + k);
    MR_UNROLL for (int j = 0; j < kPairs; ++j) y[j] = vld1q_u16(b + j * b_stride + k);
    MR_UNROLL for (int i = 0; i < kPairs; ++i) {
      MR_UNROLL for (int j = 0; j < kPairs; ++j) add_products(acc[i][j], x[i], y[j]);
    }
  }
  MR_UNROLL for (int i = 0; i < kPairs; ++i) {
    MR_UNROLL for (int j = 0; j < kPairs; j += 2) {
      float* at = c + 2 * i * c_stride + 2 * j;
      vst1q_f32(at, zip_low(acc[i][j], acc[i][j + 1]));
      vst1q_f32(at + c_stride, zip_high(acc[i][j], acc[i][j + 1]));
    }
  }
}

template <bool accumulate>
void multiply_all(const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride, int64_t rows, int64_t cols,
                  int64_t depth, float* c, int64_t c_stride) {
  for (int64_t j = 0; j < cols; j += 2 * kPairs) {
    for (int64_t i = 0; i < rows; i += 2 * kPairs) {
      multiply_tile<accumulate>(a + i / 2 * a_stride, a_stride, b + j / 2 * b_stride, b_stride, depth,
                                c + i * c_stride + j, c_stride);
    }
  }
}

}  // namespace

void PairProducts::pack_left(const float* a, int64_t stride, int64_t rows, int64_t cols, uint16_t* out, int64_t width) {
  for (int64_t row = 0; row < rows; row += 2, out += 2 * width) {
    const float *first = a + row * stride, *second = first + stride;
    for (int64_t i = 0; i < cols; i += 8) {
      store_pair(round8(vld1q_f32(first + i), vld1q_f32(first + i + 4)),
                 round8(vld1q_f32(second + i), vld1q_f32(second + i + 4)), out + i * 2);
    }
  }
}

void PairProducts::pack_right(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                              int64_t width) {
  if (dtype == DType::F16) return pack_rows<DType::F16>(rows, count, cols, out, 2 * width);
  pack_rows<DType::BF16>(rows, count, cols, out, 2 * width);
}

void PairProducts::pack_right_columns(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols,
                                      uint16_t* out, int64_t width) {
  if (dtype == DType::F16) return pack_columns<DType::F16>(rows, count, cols, out, 2 * width);
  pack_columns<DType::BF16>(rows, count, cols, out, 2 * width);
}

void PairProducts::multiply(const uint16_t* left, const uint16_t* right, int64_t width, int64_t rows, int64_t cols,
                            int64_t depth, float* c, int64_t c_stride, bool accumulate) {
  const int64_t stride = 2 * width;
  if (accumulate) return multiply_all<true>(left, stride, right, stride, rows, cols, depth, c, c_stride);
  multiply_all<false>(left, stride, right, stride, rows, cols, depth, c, c_stride);
}

}  // namespace millrace
MR_END_TARGET
