#include <arm_neon.h>

#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

constexpr int kSums = 16;        // four pipes with a latency of four cycles
constexpr int kProductSums = 8;  // GCC uses two registers for each

void fmla_f32(int64_t rounds) {
  float32x4_t sums[kSums] = {};
  float32x4_t a = operand(vdupq_n_f32(0.5f)), b = operand(vdupq_n_f32(0.25f));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) { sums[i] = vfmaq_f32(sums[i], a, b); });
  }
  keep(sums);
}

// The int8 product of cores without dot products: 16 byte products, added in pairs into 32 bits.
void smull_smlal_sadalp(int64_t rounds) {
  int32x4_t sums[kProductSums] = {};
  int8x8_t a = operand(vdup_n_s8(3)), b = operand(vdup_n_s8(-5));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kProductSums>([&](int i) {
      MR_OPAQUE(a);  // otherwise the compiler computes one product for all sums
      sums[i] = vpadalq_s16(sums[i], vmlal_s8(vmull_s8(a, b), b, a));
    });
  }
  keep(sums);
}

constexpr IsaSet kNeon = IsaSet().with(Isa::Neon);

}  // namespace

constinit const Peak kNeonPeaks[2] = {
    {"smlal", PeakKind::Int8, kNeon, 2 * 16 * kProductSums, smull_smlal_sadalp},
    {"fmla", PeakKind::F32, kNeon, 2 * 4 * kSums, fmla_f32},
};

}  // namespace millrace
