// Converts weights of any packed format to int8 with one scale per up to 256 elements of a row, for prompts: applying a
// scale per 32 elements would take as many instructions as the products. The new step is 1/127 of the largest weight,
// at most a sixteenth of the step of a 4-bit format. Many rows of x share the cost. Included inside a target region,
// after the formats.
#pragma once

#include "kernels/linear/rows8/arm/activations-inl.h"
#include "kernels/linear/rows8/arm/unpack-inl.h"

constexpr int kSuperGroups = 8;

// Cuts a row into stretches of about equal length, with one scale each.
struct Supers {
  int64_t groups, each, count;  // groups of 32 per row, groups per stretch, stretches per row

  explicit Supers(int64_t k)
      : groups(k / 32),
        each((groups + ceil_div(groups, kSuperGroups) - 1) / ceil_div(groups, kSuperGroups)),
        count(ceil_div(groups, each)) {}
  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
  int64_t first(int64_t super) const { return super * each; }
  int64_t size(int64_t super) const { return std::min(each, groups - first(super)); }
};

// Requantization of four rows: 256 new = old * factor / 128 + offset, where the offset includes one half for rounding.
// Eight-bit factors would need fewer instructions but increase the error by a fifth.
struct Affine {
  int16x8_t factor, offset;  // each row twice
};

// Four rows of a stretch: scales and minima of its groups, and the step of the new q.
template <class Format>
struct Steps4 {
  static constexpr bool kOffsets = Format::kMins || Top<Format>::kOffset != 0;
  static constexpr float kFactorUnit = 1 << 15, kOffsetUnit = 1 << 8;

  float32x4_t factor[kSuperGroups][Format::kScales], offset[kSuperGroups][Format::kScales];
  float32x4_t step, inverse;

  template <class PlaceOf>
  MR_INLINE Steps4(int64_t groups, int half, const PlaceOf& place_of) {
    float32x4_t most = vdupq_n_f32(0);
    for (int64_t i = 0; i < groups; ++i) {
      const auto place = place_of(i);
      unrolled<Format::kScales>([&](auto s) MR_INLINE {
        const float32x4_t scale = scale_of<Format>(*place.block, place.g, half, s);
        factor[i][s] = vmulq_n_f32(scale, Top<Format>::kUnit);
        float32x4_t size = vmulq_n_f32(vabsq_f32(scale), 128 * Top<Format>::kUnit);
        if constexpr (kOffsets) {
          offset[i][s] = vmulq_n_f32(scale, Top<Format>::kOffset);
          if constexpr (Format::kMins) {
            offset[i][s] = vaddq_f32(offset[i][s], plain_min_of<Format>(*place.block, place.g, half, s));
          }
          size = vaddq_f32(size, vabsq_f32(offset[i][s]));
        }
        most = vmaxq_f32(most, size);
      });
    }
    step = vmulq_n_f32(most, 1 / 127.0f);
    const uint32x4_t any = vcgtq_f32(most, vdupq_n_f32(0));
    inverse = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(vdivq_f32(vdupq_n_f32(1), step)), any));
  }

  MR_INLINE Affine affine(int64_t group, int s) const {
    // The low 16 bits of each row's integer, twice.
    constexpr uint8_t kHalves[16] = {0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13};
    const auto integer = [&](float32x4_t zero, float32x4_t v, float unit) MR_INLINE {
      const float32x4_t shifted = vfmaq_f32(zero, v, vmulq_n_f32(inverse, unit));
      return vreinterpretq_s16_s8(vqtbl1q_s8(vreinterpretq_s8_f32(shifted), vld1q_u8(kHalves)));
    };
    const int16x8_t half = vdupq_n_s16(1 << 7);
    Affine to{integer(vdupq_n_f32(kIntegerShift), factor[group][s], kFactorUnit), half};
    if constexpr (kOffsets) {
      to.offset = integer(vdupq_n_f32(kIntegerShift + kOffsetUnit / 2), offset[group][s], kOffsetUnit);
    }
    return to;
  }

  // Processes even and odd bytes separately; each result is the high byte of a 16-bit product.
  MR_INLINE static int8x16_t apply(const Affine& by, int8x16_t w) {
    const int16x8_t both = vreinterpretq_s16_s8(w);
    const auto renewed = [&](int16x8_t old) MR_INLINE { return vaddq_s16(vqrdmulhq_s16(old, by.factor), by.offset); };
    const int16x8_t even = renewed(vshlq_n_s16(both, 8)), odd = renewed(vandq_s16(both, vdupq_n_s16(-256)));
    return vreinterpretq_s8_s16(vsriq_n_s16(odd, even, 8));
  }
};

// Requantizes a stretch of a strip. Calls to.put_step(half, steps), and to.put(group, half, weights) for each group and
// half of the eight rows.
template <class Format, class To>
MR_INLINE inline void requantize(const LinearWeights& weights, int64_t strip, const Supers& supers, int64_t super,
                                 To& to) {
  const auto* blocks =
      reinterpret_cast<const typename Format::Block*>(weights.data) + strip * (supers.groups / Format::kGroups);
  const int64_t first = supers.first(super), size = supers.size(super);
  struct Place {
    const typename Format::Block* block;
    int g;
  };
  const auto place_of = [&](int64_t i) MR_INLINE {
    return Place{blocks + (first + i) / Format::kGroups, static_cast<int>((first + i) % Format::kGroups)};
  };
  unrolled<2>([&](auto half) MR_INLINE {
    const Steps4<Format> steps(size, half, place_of);
    to.put_step(half, steps.step);
    for (int64_t i = 0; i < size; ++i) {
      const Place at = place_of(i);
      if (half == 0 && at.g == 0) prefetch_after(at.block);
      Weights w;
      Top<Format>::weights(*at.block, at.g, half, w);
      constexpr int kQuads = 8 / Format::kScales;
      unrolled<Format::kScales>([&](auto s) MR_INLINE {
        const Affine by = steps.affine(i, s);
        unrolled<kQuads>([&](auto j) MR_INLINE { w[s * kQuads + j] = Steps4<Format>::apply(by, w[s * kQuads + j]); });
      });
      to.put(i, half, w);
    }
  });
}
