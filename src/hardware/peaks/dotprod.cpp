#include <arm_neon.h>

#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

constexpr int kSums = 16;

void sdot(int64_t rounds) {
  int32x4_t sums[kSums] = {};
  int8x16_t a = operand(vdupq_n_s8(3)), b = operand(vdupq_n_s8(-5));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) { sums[i] = vdotq_s32(sums[i], a, b); });
  }
  keep(sums);
}

void fmla_f16(int64_t rounds) {
  float16x8_t sums[kSums] = {};
  float16x8_t a = operand(vdupq_n_f16(0.5f)), b = operand(vdupq_n_f16(0.25f));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) { sums[i] = vfmaq_f16(sums[i], a, b); });
  }
  keep(sums);
}

constexpr IsaSet kNeon = IsaSet().with(Isa::Neon);

}  // namespace

constinit const Peak kDotprodPeaks[2] = {
    {"sdot", PeakKind::Int8, kNeon.with(Isa::DotProd), 2 * 16 * kSums, sdot},
    {"fmla half", PeakKind::F16, kNeon.with(Isa::Fp16), 2 * 8 * kSums, fmla_f16},
};

}  // namespace millrace
