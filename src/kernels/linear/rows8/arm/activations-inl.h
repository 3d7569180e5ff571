// Rounds x to int8. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

// A float of this magnitude has no fraction bits, and its low mantissa bits are an integer. Adding it rounds to an
// integer, and integer sums that start from its bits are valid floats. Conversion instructions would take two slots of
// the two pipes that have them.
constexpr float kIntegerShift = 0x1.8p23f;

struct Rounded32 {
  int8x16_t q[2];
  int total[2];  // sum of each half of q
};

// The low bytes of four vectors.
MR_INLINE inline int8x16_t low_bytes(const float32x4_t* v) {
  const auto halves = [](float32x4_t a, float32x4_t b)
                          MR_INLINE { return vuzp1q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b)); };
  return vreinterpretq_s8_u8(
      vuzp1q_u8(vreinterpretq_u8_u16(halves(v[0], v[1])), vreinterpretq_u8_u16(halves(v[2], v[3]))));
}

MR_INLINE inline float largest_of(const float* x, int64_t count) {
  float32x4_t most[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  for (int64_t i = 0; i < count; i += 16) {
    unrolled<4>([&](auto j) MR_INLINE { most[j] = vmaxq_f32(most[j], vabsq_f32(vld1q_f32(x + i + 4 * j))); });
  }
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(most[0], most[1]), vmaxq_f32(most[2], most[3])));
}

// 32 elements of x times `inverse`, rounded. `paired`: subtracts a sixteenth of the rounded second half from the first
// (packed_x-inl.h).
template <bool paired>
MR_INLINE inline Rounded32 round_32(const float* x, float inverse) {
  const float32x4_t large = vdupq_n_f32(kIntegerShift);
  float32x4_t low[4], high[4];
  unrolled<4>([&](auto i) MR_INLINE {
    high[i] = vaddq_f32(vmulq_n_f32(vld1q_f32(x + 16 + 4 * i), inverse), large);
    low[i] = vmulq_n_f32(vld1q_f32(x + 4 * i), inverse);
    if constexpr (paired) low[i] = vfmsq_n_f32(low[i], vsubq_f32(high[i], large), 1.0f / 16);
    low[i] = vaddq_f32(low[i], large);
  });
  Rounded32 out{{low_bytes(low), low_bytes(high)}, {}};
  for (int half = 0; half < 2; ++half) out.total[half] = vaddlvq_s8(out.q[half]);
  return out;
}
