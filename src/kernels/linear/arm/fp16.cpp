// FMLA of halves, for cores without FMLAL: 32 products of a row are added in f16, such sums in f32. Converting weights
// instead would take such a core longer than reading them.
#include "kernels/linear/arm/half_rows.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

MR_BEGIN_TARGET("arch=armv8.2-a+fp16", "fullfp16")
namespace millrace {
namespace {

constexpr int kSteps = 4;  // of eight elements whose products are added in f16

// In assembly for the same reasons as in attention/arm/half_products.cpp.
inline void add_products(uint16x8_t& sum, uint16x8_t a, uint16x8_t b) {
  asm volatile("fmla %0.8h, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
}
inline uint16x8_t products(uint16x8_t a, uint16x8_t b) {
  uint16x8_t out;
  asm volatile("fmul %0.8h, %1.8h, %2.8h" : "=w"(out) : "w"(a), "w"(b));
  return out;
}
inline uint16x8_t add_neighbours(uint16x8_t a, uint16x8_t b) {
  uint16x8_t sums;
  asm("faddp %0.8h, %1.8h, %2.8h" : "=w"(sums) : "w"(a), "w"(b));
  return sums;
}

// A lane for each row.
inline uint16x8_t sums_of_rows(const uint16x8_t (&v)[kHalfRows]) {
  const uint16x8_t quarters[2] = {add_neighbours(add_neighbours(v[0], v[1]), add_neighbours(v[2], v[3])),
                                  add_neighbours(add_neighbours(v[4], v[5]), add_neighbours(v[6], v[7]))};
  return add_neighbours(quarters[0], quarters[1]);
}

template <int steps>
inline void add_steps(const uint16_t* const (&w)[kHalfRows], const uint16_t* x, int64_t i, float32x4_t (&acc)[2]) {
  uint16x8_t sums[kHalfRows];
  MR_UNROLL for (int step = 0; step < steps; ++step) {
    const uint16x8_t xs = vld1q_u16(x + i + 8 * step);
    MR_UNROLL for (int r = 0; r < kHalfRows; ++r) {
      const uint16x8_t ws = vld1q_u16(w[r] + i + 8 * step);
      if (step == 0) {
        sums[r] = products(ws, xs);
      } else {
        add_products(sums[r], ws, xs);
      }
    }
  }
  const float16x8_t all = vreinterpretq_f16_u16(sums_of_rows(sums));
  acc[0] = vaddq_f32(acc[0], vcvt_f32_f16(vget_low_f16(all)));
  acc[1] = vaddq_f32(acc[1], vcvt_high_f32_f16(all));
}

void dot_rows(const uint16_t* const (&w)[kHalfRows], const uint16_t* x, int64_t k, int64_t ahead,
              float (&sums)[kHalfRows]) {
  float32x4_t acc[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
  int64_t i = 0;
  for (; i + 8 * kSteps <= k; i += 8 * kSteps) {
    MR_UNROLL for (int line = 0; line < kHalfRows; ++line)
        __builtin_prefetch(w[0] + ahead + kHalfRows * i + 32 * line, 0, 2);
    add_steps<kSteps>(w, x, i, acc);
  }
  for (; i < k; i += 8) add_steps<1>(w, x, i, acc);
  vst1q_f32(sums, acc[0]);
  vst1q_f32(sums + 4, acc[1]);
}

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

const LinearKernel* fp16_linear() {
  // Sums of products with weights of up to 128 stay finite whatever their signs; larger ones mostly do, too.
  static const HalfRowsLinear kernel({"gemv_fp16", Isa::Fp16, 16, 2, dot_rows});
  return &kernel;
}

}  // namespace millrace
