// FMLAL: multiplies f16 and accumulates in f32, so weights need no conversion.
#include "kernels/linear/rows/arm/half_rows.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

MR_BEGIN_TARGET("arch=armv8.2-a+fp16+fp16fml", "fullfp16,fp16fml")
namespace millrace {
namespace {

// Inline assembly for the reasons given in attention/arm/half_products.cpp.
inline void add_products(float32x4_t (&sums)[2], uint16x8_t a, uint16x8_t b) {
  asm volatile("fmlal %0.4s, %1.4h, %2.4h" : "+w"(sums[0]) : "w"(a), "w"(b));
  asm volatile("fmlal2 %0.4s, %1.4h, %2.4h" : "+w"(sums[1]) : "w"(a), "w"(b));
}

void dot_rows(const uint16_t* const (&w)[kHalfRows], const uint16_t* x, int64_t k, int64_t ahead,
              float (&sums)[kHalfRows]) {
  float32x4_t acc[kHalfRows][2];
  MR_UNROLL for (int r = 0; r < kHalfRows; ++r) acc[r][0] = acc[r][1] = vdupq_n_f32(0);
  for (int64_t i = 0; i < k; i += 8) {
    const uint16x8_t xs = vld1q_u16(x + i);
    MR_UNROLL for (int line = 0; line < kHalfRows / 4; ++line)
        __builtin_prefetch(w[0] + ahead + kHalfRows * i + 32 * line, 0, 2);
    MR_UNROLL for (int r = 0; r < kHalfRows; ++r) add_products(acc[r], vld1q_u16(w[r] + i), xs);
  }
  MR_UNROLL for (int r = 0; r < kHalfRows; ++r) sums[r] = vaddvq_f32(vaddq_f32(acc[r][0], acc[r][1]));
}

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

const LinearKernel* fhm_linear() {
  // 1024 keeps scaled x far from both ends of the f16 range.
  static const HalfRowsLinear kernel({"gemv_fhm", Isa::Fhm, 1024, 1, dot_rows});
  return &kernel;
}

}  // namespace millrace
