#include <arm_neon.h>

#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

constexpr int kSums = 24;  // bfmmla has a long latency

// One instruction multiplies 2x8 by 8x2 bytes.
void smmla(int64_t rounds) {
  int32x4_t sums[kSums] = {};
  int8x16_t a = operand(vdupq_n_s8(3)), b = operand(vdupq_n_s8(-5));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) { sums[i] = vmmlaq_s32(sums[i], a, b); });
  }
  keep(sums);
}

// 2x4 by 4x2 numbers.
void bfmmla(int64_t rounds) {
  float32x4_t sums[kSums] = {};
  bfloat16x8_t a = operand(vreinterpretq_bf16_u16(vdupq_n_u16(0x3f00))),
               b = operand(vreinterpretq_bf16_u16(vdupq_n_u16(0x3e80)));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) { sums[i] = vbfmmlaq_f32(sums[i], a, b); });
  }
  keep(sums);
}

constexpr IsaSet kNeon = IsaSet().with(Isa::Neon).with(Isa::Fp16);  // GCC builds bf16 constants with fp16 moves

}  // namespace

constinit const Peak kI8mmPeaks[2] = {
    {"smmla", PeakKind::Int8, kNeon.with(Isa::I8mm), 2 * 32 * kSums, smmla},
    {"bfmmla", PeakKind::Bf16, kNeon.with(Isa::Bf16), 2 * 16 * kSums, bfmmla},
};

}  // namespace millrace
