// Weights of any packed format as int8 with one scale for up to 256 elements of a row, for prompts: a scale for every
// 32 would take as many instructions as the products. The new steps are at most 1/127 of the largest weight, a few
// hundredths of a step of 4-bit formats; what it costs is spread over the rows of x. Included inside a target region,
// after the formats and Fixed.
#pragma once

#include "kernels/linear/arm/unpack-inl.h"

constexpr int kSuperGroups = 8;

// How a row is cut into stretches of one scale each, all about equally long.
struct Supers {
  int64_t groups, each, count;  // groups of 32 in all, in a stretch; stretches

  explicit Supers(int64_t k)
      : groups(k / 32),
        each((groups + ceil_div(groups, kSuperGroups) - 1) / ceil_div(groups, kSuperGroups)),
        count(ceil_div(groups, each)) {}
  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
  int64_t first(int64_t super) const { return super * each; }
  int64_t size(int64_t super) const { return std::min(each, groups - first(super)); }
};

// What makes the new q of an old one, four rows at a time: 256 new = 256 old * factor + offset.
struct Affine {
  int16x8_t factor[2], offset[2];  // each of rows 0, 1 and of rows 2, 3 four times
};

MR_INLINE inline void each_four_times(int32x4_t rows, int16x8_t (&to)[2]) {
  const int16x4_t narrow = vqmovn_s32(rows);
  const int16x8_t twice = vcombine_s16(vzip1_s16(narrow, narrow), vzip2_s16(narrow, narrow));
  const int32x4_t pairs = vreinterpretq_s32_s16(twice);
  to[0] = vreinterpretq_s16_s32(vzip1q_s32(pairs, pairs));
  to[1] = vreinterpretq_s16_s32(vzip2q_s32(pairs, pairs));
}

// Four rows of a stretch: scales and minima of its groups, and the step of the new q.
template <class Format>
struct Steps4 {
  float32x4_t factor[kSuperGroups][Format::kScales], offset[kSuperGroups][Format::kScales];
  float32x4_t step, inverse;

  template <class BlockOf>
  MR_INLINE Steps4(int64_t groups, int half, const BlockOf& block_of) {
    float32x4_t most = vdupq_n_f32(0);
    for (int64_t i = 0; i < groups; ++i) {
      const auto [block, g] = block_of(i);
      unrolled<Format::kScales>([&](auto s) MR_INLINE {
        const float32x4_t scale = scale_of<Format>(*block, g, half, s);
        float32x4_t middle = vmulq_n_f32(scale, Top<Format>::kOffset);
        if constexpr (Format::kMins) middle = vaddq_f32(middle, plain_min_of<Format>(*block, g, half, s));
        factor[i][s] = vmulq_n_f32(scale, Top<Format>::kUnit);
        offset[i][s] = middle;
        most = vmaxq_f32(most, vfmaq_n_f32(vabsq_f32(middle), vabsq_f32(factor[i][s]), 128));
      });
    }
    step = vmulq_n_f32(most, 1 / 127.0f);
    const uint32x4_t any = vcgtq_f32(most, vdupq_n_f32(0));
    inverse = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(vdivq_f32(vdupq_n_f32(1), step)), any));
  }

  MR_INLINE Affine affine(int64_t group, int s) const {
    Affine to;
    each_four_times(vcvtnq_s32_f32(vmulq_f32(factor[group][s], vmulq_n_f32(inverse, 0x1p15f))), to.factor);
    const float32x4_t round = vdupq_n_f32(128);
    each_four_times(vcvtnq_s32_f32(vfmaq_f32(round, offset[group][s], vmulq_n_f32(inverse, 256))), to.offset);
    return to;
  }
};

MR_INLINE inline int8x16_t requantized(int8x16_t w, const Affine& by) {
  const int16x8_t low = Fixed::fma(by.offset[0], vshll_n_s8(vget_low_s8(w), 8), by.factor[0]);
  const int16x8_t high = Fixed::fma(by.offset[1], vshll_high_n_s8(w, 8), by.factor[1]);
  return vuzp2q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
}

// A strip's stretch: to(group, half, weights) for every group and half, and the steps of all eight rows.
template <class Format, class To>
MR_INLINE inline void requantize(const LinearWeights& weights, int64_t strip, const Supers& supers, int64_t super,
                                 float (&step)[kPackedRows], const To& to) {
  const auto* blocks =
      reinterpret_cast<const typename Format::Block*>(weights.data) + strip * (supers.groups / Format::kGroups);
  const int64_t first = supers.first(super), size = supers.size(super);
  struct Place {
    const typename Format::Block* block;
    int g;
  };
  const auto block_of = [&](int64_t i) MR_INLINE {
    return Place{blocks + (first + i) / Format::kGroups, static_cast<int>((first + i) % Format::kGroups)};
  };
  unrolled<2>([&](auto half) MR_INLINE {
    const Steps4<Format> steps(size, half, block_of);
    vst1q_f32(step + 4 * half, steps.step);
    for (int64_t i = 0; i < size; ++i) {
      const Place at = block_of(i);
      if (half == 0 && at.g == 0) prefetch_after(at.block);
      Weights w;
      Top<Format>::weights(*at.block, at.g, half, w);
      constexpr int kQuads = 8 / Format::kScales;
      unrolled<Format::kScales>([&](auto s) MR_INLINE {
        const Affine by = steps.affine(i, s);
        unrolled<kQuads>([&](auto j) MR_INLINE { w[s * kQuads + j] = requantized(w[s * kQuads + j], by); });
      });
      to(i, half, w);
    }
  });
}
