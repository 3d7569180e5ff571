// Unpacks each packed format to int8: for four of the eight rows (`half` selects them), the 32 elements of a group as
// eight vectors, each a quad of four rows. Included inside a target region.
//
//   small blocks   w = d * (unit * q + offset) + m
//   K-blocks       w = d * scale * (unit * q + offset) - dmin * min, with integer scale and min per group
//
// If a zero point makes q signed, its bits are moved to the top of the byte, and `unit` undoes that factor.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

using Weights = int8x16_t[8];

MR_INLINE inline uint8x16_t load_half(const Quad* rows, int half) { return vld1q_u8(rows[4 * half]); }

MR_INLINE inline float32x4_t load_f16(const HalfOfRow& values, int half) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(values + 4 * half)));
}
// 2^(e - 127): the E8M0 scale. An exponent of 0 is subnormal.
MR_INLINE inline float32x4_t load_scales(const uint8_t (&exponents)[kPackedRows], int half) {
  const uint16x8_t wide = vmovl_u8(vld1_u8(exponents));
  const uint32x4_t e = vmovl_u16(half == 0 ? vget_low_u16(wide) : vget_high_u16(wide));
  return vreinterpretq_f32_u32(vmaxq_u32(vshlq_n_u32(e, 23), vdupq_n_u32(1 << 22)));
}
MR_INLINE inline int16x8_t widened(uint8x8_t v) { return vreinterpretq_s16_u16(vmovl_u8(v)); }
// One byte of each of the eight rows as integers, four to a vector.
MR_INLINE inline void widen(uint8x8_t v, int32x4_t (&to)[2]) {
  const uint16x8_t wide = vmovl_u8(v);
  to[0] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
  to[1] = vreinterpretq_s32_u32(vmovl_high_u16(wide));
}
MR_INLINE inline void widen(int8x8_t v, int32x4_t (&to)[2]) {
  const int16x8_t wide = vmovl_s8(v);
  to[0] = vmovl_s16(vget_low_s16(wide));
  to[1] = vmovl_high_s16(wide);
}

// `flip` = kNibbleFlip: the high nibbles are stored as two's complement.
template <int flip>
MR_INLINE inline void unsigned_nibbles(const Nibbles& nibbles, int half, Weights& w) {
  unrolled<4>([&](auto j) MR_INLINE {
    uint8x16_t both = load_half(nibbles[j], half);
    if constexpr (flip != 0) both = veorq_u8(both, vdupq_n_u8(flip));
    w[j] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    w[j + 4] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  });
}

MR_INLINE inline void top_nibbles(const Nibbles& nibbles, int half, Weights& w) {
  unrolled<4>([&](auto j) MR_INLINE {
    const uint8x16_t both = veorq_u8(load_half(nibbles[j], half), vdupq_n_u8(kNibbleFlip ^ 0x88));
    w[j] = vreinterpretq_s8_u8(vshlq_n_u8(both, 4));
    w[j + 4] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(0xf0)));
  });
}

// `high` shifted left by `up` bits, with the low bits of `low` below it.
template <int up>
MR_INLINE inline uint8x16_t above(uint8x16_t high, uint8x16_t low) {
  return vsliq_n_u8(low, high, up);
}
MR_INLINE inline int8x16_t top(uint8x16_t v, uint8_t mask) {
  return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(mask)));
}

MR_INLINE inline void top_threes(const Threes& threes, int half, Weights& w) {
  const uint8x16_t v[3] = {load_half(threes[0], half), load_half(threes[1], half), load_half(threes[2], half)};
  unrolled<3>([&](auto i) MR_INLINE {
    w[2 * i] = top(v[i], 0xe0);
    w[2 * i + 1] = top(vshlq_n_u8(v[i], 3), 0xe0);
  });
  w[6] = top(above<6>(v[0], vshlq_n_u8(v[1], 4)), 0xe0);
  w[7] = vreinterpretq_s8_u8(above<7>(v[1], vshlq_n_u8(v[2], 5)));
}

MR_INLINE inline void top_fives(const Fives& fives, int half, Weights& w) {
  uint8x16_t v[5];
  unrolled<5>([&](auto i) MR_INLINE {
    v[i] = load_half(fives[i], half);
    w[i] = top(v[i], 0xf8);
  });
  w[5] = top(above<5>(v[0], vshlq_n_u8(v[1], 2)), 0xf8);
  w[6] = top(above<5>(v[2], vshlq_n_u8(v[3], 2)), 0xf8);
  w[7] = vreinterpretq_s8_u8(above<5>(v[4], above<4>(v[1], vshlq_n_u8(v[3], 3))));
}

MR_INLINE inline void top_sixes(const Sixes& sixes, int half, Weights& w) {
  unrolled<2>([&](auto p) MR_INLINE {
    uint8x16_t v[3];
    unrolled<3>([&](auto i) MR_INLINE {
      v[i] = load_half(sixes[3 * p + i], half);
      w[4 * p + i] = top(v[i], 0xfc);
    });
    w[4 * p + 3] = vreinterpretq_s8_u8(above<6>(v[0], above<4>(v[1], vshlq_n_u8(v[2], 2))));
  });
}

MR_INLINE inline void unsigned_twos(const Twos& twos, int half, Weights& w) {
  const uint8x16_t all[2] = {load_half(twos[0], half), load_half(twos[1], half)};
  unrolled<8>([&](auto quad) MR_INLINE {
    uint8x16_t field = all[quad / 4];
    if constexpr (quad % 4 != 0) field = vshrq_n_u8(field, quad % 4 * 2);
    w[quad] = vreinterpretq_s8_u8(vandq_u8(field, vdupq_n_u8(3)));
  });
}

MR_INLINE inline void uneven_nibbles(const Nibbles& nibbles, int half, Weights& w) {
  const int8x16_t levels = vld1q_s8(kIq4Values.data());
  unsigned_nibbles<0>(nibbles, half, w);
  unrolled<8>([&](auto j) MR_INLINE { w[j] = vqtbl1q_s8(levels, vreinterpretq_u8_s8(w[j])); });
}

// The E2M1 numbers times 16.
MR_INLINE inline void fp4_nibbles(const Nibbles& nibbles, int half, Weights& w) {
  const int8x16_t levels = vshlq_n_s8(vld1q_s8(kFp4Values.data()), 3);
  unsigned_nibbles<0>(nibbles, half, w);
  unrolled<8>([&](auto j) MR_INLINE { w[j] = vqtbl1q_s8(levels, vreinterpretq_u8_s8(w[j])); });
}

struct SmallBlock {
  static constexpr int kGroups = 1, kScales = 1;
  static constexpr bool kMins = false;
  static constexpr bool kNibbles = false;  // nibbles with a zero point of kZero
  static constexpr float kUnit = 1;
  static constexpr int kOffset = 0;
};

struct UnpackQ8_0 : SmallBlock {
  using Block = PackedQ8_0;
  MR_INLINE static void weights(const Block& b, int, int half, Weights& w) {
    unrolled<8>([&](auto j) MR_INLINE { w[j] = vld1q_s8(b.q[j][4 * half]); });
  }
};

struct UnpackQ4_0 : SmallBlock {
  using Block = PackedQ4_0;
  static constexpr bool kNibbles = true;
  static constexpr int kZero = 8;
  static constexpr float kUnit = 1.0f / 16;
  MR_INLINE static const Nibbles& nibbles(const Block& b, int) { return b.nibbles; }
  MR_INLINE static void weights(const Block& b, int, int half, Weights& w) { top_nibbles(b.nibbles, half, w); }
};

struct UnpackQ4_1 : SmallBlock {
  using Block = PackedQ4_1;
  static constexpr bool kMins = true, kNibbles = true;
  static constexpr int kZero = 0;
  MR_INLINE static const Nibbles& nibbles(const Block& b, int) { return b.nibbles; }
  MR_INLINE static void weights(const Block& b, int, int half, Weights& w) {
    unsigned_nibbles<kNibbleFlip>(b.nibbles, half, w);
  }
};

struct UnpackQ5_0 : SmallBlock {
  using Block = PackedQ5_0;
  static constexpr float kUnit = 1.0f / 8;
  MR_INLINE static void weights(const Block& b, int, int half, Weights& w) { top_fives(b.fives, half, w); }
};

struct UnpackQ5_1 : SmallBlock {
  using Block = PackedQ5_1;
  static constexpr bool kMins = true;
  static constexpr float kUnit = 1.0f / 8;
  static constexpr int kOffset = 16;
  MR_INLINE static void weights(const Block& b, int, int half, Weights& w) { top_fives(b.fives, half, w); }
};

struct UnpackIQ4_NL : SmallBlock {
  using Block = PackedQ4_0;
  MR_INLINE static void weights(const Block& b, int, int half, Weights& w) { uneven_nibbles(b.nibbles, half, w); }
};

struct UnpackMXFP4 : SmallBlock {
  using Block = PackedMXFP4;
  static constexpr float kUnit = 1.0f / 16;
  MR_INLINE static void weights(const Block& b, int, int half, Weights& w) { fp4_nibbles(b.nibbles, half, w); }
};

struct KBlock {
  static constexpr int kGroups = 8, kScales = 1;
  static constexpr bool kMins = false;
  static constexpr bool kNibbles = false;  // nibbles with a zero point of kZero
  static constexpr float kUnit = 1;
  static constexpr int kOffset = 0;
};

struct UnpackIQ4_XS : KBlock {
  using Block = PackedIQ4_XS;
  MR_INLINE static void weights(const Block& b, int g, int half, Weights& w) {
    uneven_nibbles(b.groups[g].nibbles, half, w);
  }
  MR_INLINE static void scales(const Block& b, int g, int, int32x4_t (&to)[2]) {
    widen(vld1_s8(b.groups[g].scale), to);
  }
};

struct UnpackQ4_K : KBlock {
  using Block = PackedQ4_K;
  static constexpr bool kMins = true, kNibbles = true;
  static constexpr int kZero = 0;
  MR_INLINE static const Nibbles& nibbles(const Block& b, int g) { return b.groups[g].nibbles; }
  MR_INLINE static void weights(const Block& b, int g, int half, Weights& w) {
    unsigned_nibbles<kNibbleFlip>(b.groups[g].nibbles, half, w);
  }
  MR_INLINE static void scales(const Block& b, int g, int, int32x4_t (&to)[2]) {
    widen(vld1_u8(b.groups[g].scale), to);
  }
  MR_INLINE static int16x8_t mins(const Block& b, int g, int) { return widened(vld1_u8(b.groups[g].min)); }
};

struct UnpackQ5_K : KBlock {
  using Block = PackedQ5_K;
  static constexpr bool kMins = true;
  static constexpr float kUnit = 1.0f / 8;
  static constexpr int kOffset = 16;
  MR_INLINE static void weights(const Block& b, int g, int half, Weights& w) { top_fives(b.groups[g].fives, half, w); }
  MR_INLINE static void scales(const Block& b, int g, int, int32x4_t (&to)[2]) {
    widen(vld1_u8(b.groups[g].scale), to);
  }
  MR_INLINE static int16x8_t mins(const Block& b, int g, int) { return widened(vld1_u8(b.groups[g].min)); }
};

struct UnpackQ6_K : KBlock {
  using Block = PackedQ6_K;
  static constexpr int kScales = 2;
  static constexpr float kUnit = 1.0f / 4;
  MR_INLINE static void weights(const Block& b, int g, int half, Weights& w) { top_sixes(b.groups[g].sixes, half, w); }
  MR_INLINE static void scales(const Block& b, int g, int s, int32x4_t (&to)[2]) {
    widen(vld1_s8(b.groups[g].scale[s]), to);
  }
};

struct UnpackQ3_K : KBlock {
  using Block = PackedQ3_K;
  static constexpr int kScales = 2;
  static constexpr float kUnit = 1.0f / 32;
  MR_INLINE static void weights(const Block& b, int g, int half, Weights& w) {
    top_threes(b.groups[g].threes, half, w);
  }
  MR_INLINE static void scales(const Block& b, int g, int s, int32x4_t (&to)[2]) {
    widen(vld1_s8(b.groups[g].scale[s]), to);
  }
};

struct UnpackQ2_K : KBlock {
  using Block = PackedQ2_K;
  static constexpr int kScales = 2;
  static constexpr bool kMins = true;
  MR_INLINE static void weights(const Block& b, int g, int half, Weights& w) {
    unsigned_twos(b.groups[g].twos, half, w);
  }
  MR_INLINE static void scales(const Block& b, int g, int s, int32x4_t (&to)[2]) {
    widen(vand_u8(vld1_u8(b.groups[g].scale_min[s]), vdup_n_u8(15)), to);
  }
  MR_INLINE static int16x8_t mins(const Block& b, int g, int s) {
    return widened(vshr_n_u8(vld1_u8(b.groups[g].scale_min[s]), 4));
  }
};

// The scale of four rows of a block.
template <class Block>
MR_INLINE inline float32x4_t block_scale(const Block& b, int half) {
  if constexpr (requires { b.e; }) {
    return load_scales(b.e, half);
  } else {
    return load_f16(b.d, half);
  }
}

// The same form for all formats: w = scale * unit * q + min, in f32.
template <class Format>
MR_INLINE inline float32x4_t scale_of(const typename Format::Block& b, int g, int half, int s) {
  if constexpr (Format::kGroups == 1) return block_scale(b, half);
  if constexpr (Format::kGroups > 1) {
    int32x4_t scales[2];
    Format::scales(b, g, s, scales);
    return vmulq_f32(load_f16(b.d, half), vcvtq_f32_s32(scales[half]));
  }
}

template <class Format>
MR_INLINE inline float32x4_t plain_min_of(const typename Format::Block& b, int g, int half, int s) {
  if constexpr (Format::kGroups == 1) return load_f16(b.m, half);
  if constexpr (Format::kGroups > 1) {
    const int16x8_t mins = Format::mins(b, g, s);
    const int32x4_t four = vmovl_s16(half == 0 ? vget_low_s16(mins) : vget_high_s16(mins));
    return vnegq_f32(vmulq_f32(load_f16(b.dmin, half), vcvtq_f32_s32(four)));
  }
}

// For formats with minima: includes the offset.
template <class Format>
MR_INLINE inline float32x4_t min_of(const typename Format::Block& b, int g, int half, int s) {
  const float32x4_t min = plain_min_of<Format>(b, g, half, s);
  if constexpr (Format::kOffset == 0) return min;
  return vfmaq_n_f32(min, scale_of<Format>(b, g, half, s), Format::kOffset);
}

#include "kernels/linear/rows8/formats-inl.h"
