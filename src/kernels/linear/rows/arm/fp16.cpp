// FMLA on f16, for cores without FMLAL. Sums eight products in f16, and those sums in f32. On such cores, converting
// the weights would take longer than reading them.
#include "kernels/linear/rows/arm/half_rows.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

MR_BEGIN_TARGET("arch=armv8.2-a+fp16", "fullfp16")
namespace millrace {
namespace {

// Inline assembly for the reasons given in attention/arm/half_products.cpp.
inline void add_products(uint16x8_t& sum, uint16x8_t a, uint16x8_t b) {
  asm volatile("fmla %0.8h, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
}
inline uint16x8_t products(uint16x8_t a, uint16x8_t b) {
  uint16x8_t out;
  asm volatile("fmul %0.8h, %1.8h, %2.8h" : "=w"(out) : "w"(a), "w"(b));
  return out;
}
inline uint16x8_t add(uint16x8_t a, uint16x8_t b) {
  uint16x8_t sums;
  asm("fadd %0.8h, %1.8h, %2.8h" : "=w"(sums) : "w"(a), "w"(b));
  return sums;
}
inline void add_to(float32x4_t (&acc)[2], uint16x8_t sums) {
  const float16x8_t all = vreinterpretq_f16_u16(sums);
  acc[0] = vaddq_f32(acc[0], vcvt_f32_f16(vget_low_f16(all)));
  acc[1] = vaddq_f32(acc[1], vcvt_high_f32_f16(all));
}

// 64 elements: eight products per lane.
inline uint16x8_t sums_of_64(const uint16_t* w, const uint16_t* x) {
  uint16x8_t sums[4];
  MR_UNROLL for (int i = 0; i < 4; ++i) sums[i] = products(vld1q_u16(w + 8 * i), vld1q_u16(x + 8 * i));
  MR_UNROLL for (int i = 0; i < 4; ++i) add_products(sums[i], vld1q_u16(w + 32 + 8 * i), vld1q_u16(x + 32 + 8 * i));
  return add(add(sums[0], sums[1]), add(sums[2], sums[3]));
}

float dot_row(const uint16_t* w, const uint16_t* x, int64_t k) {
  constexpr int kAhead = 512;  // prefetch distance in bytes
  float32x4_t acc[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
  int64_t i = 0;
  for (; i + 64 <= k; i += 64) {
    __builtin_prefetch(w + i + kAhead / 2, 0, 3);
    __builtin_prefetch(w + i + kAhead / 2 + 32, 0, 3);
    add_to(acc, sums_of_64(w + i, x + i));
  }
  for (; i < k; i += 8) add_to(acc, products(vld1q_u16(w + i), vld1q_u16(x + i)));
  return vaddvq_f32(vaddq_f32(acc[0], acc[1]));
}

// One row after the other: these cores read fastest in memory order.
void dot_rows(const uint16_t* const (&w)[kHalfRows], const uint16_t* x, int64_t k, int64_t, float (&sums)[kHalfRows]) {
  for (int r = 0; r < kHalfRows; ++r) sums[r] = dot_row(w[r], x, k);
}

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

const LinearKernel* fp16_linear() {
  // With |x| <= 16, eight products with weights of up to 128 cannot overflow, whatever their signs. Sums with larger
  // weights rarely do.
  static const HalfRowsLinear kernel({"gemv_fp16", Isa::Fp16, 16, 2, dot_rows});
  return &kernel;
}

}  // namespace millrace
