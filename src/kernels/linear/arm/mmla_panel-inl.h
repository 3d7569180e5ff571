// The micro-kernel of panels for SMMLA, which multiplies two rows of weights with two rows of x, eight elements each:
// 8 rows of weights by up to 6 rows of x, a scale per group. Included inside a target region.
#pragma once

#include "kernels/linear/arm/panel-inl.h"

// Sums come as [w0 x0, w0 x1, w1 x0, w1 x1] of a pair of rows each: scales lie ready in that order.
template <int scales, bool mins>
struct MmlaGroup {
  float scale[scales][4][4];
  float min[mins ? scales : 0][4][4];  // the second one less the first
  int8_t q[4][4][16];                  // [eight elements][pair]
};

struct MmlaXBlock {
  static constexpr int kPairs = 3;
  float scale[kPairs][2];
  float sum[2][kPairs][2];
  int8_t q[4][kPairs][2][8];

  MR_INLINE void set(int r, const Quantized32& v, float unit) {
    const int pair = r / 2, which = r % 2;
    scale[pair][which] = v.scale * unit;
    for (int s = 0; s < 2; ++s) sum[s][pair][which] = v.scale * static_cast<float>(v.sum[s]);
    for (int i = 0; i < 2; ++i) {
      vst1_s8(q[2 * i][pair][which], vget_low_s8(v.q[i]));
      vst1_s8(q[2 * i + 1][pair][which], vget_high_s8(v.q[i]));
    }
  }
};

MR_INLINE inline float32x4_t load_twice(const float (&pair)[2]) {
  return vreinterpretq_f32_u64(vld1q_dup_u64(reinterpret_cast<const uint64_t*>(pair)));
}

// As assembly, since the order of the sums matters: the compiler's own leaves too few of them in flight.
MR_INLINE inline void smmla(int32x4_t& sum, int8x16_t w, int8x16_t x) {
  asm volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
}

// `pairs` pairs of rows of x; steps [first, first + count) of eight elements.
template <int pairs, int first, int count>
MR_INLINE inline void mmla_steps(const int8_t (&q)[4][4][16], const MmlaXBlock& x, int32x4_t (&sums)[4][pairs]) {
  unrolled<4>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { sums[i][j] = zero_sum(); }); });
  unrolled<count>([&](auto s) MR_INLINE {
    constexpr int step = first + s;
    int8x16_t xs[pairs];
    unrolled<pairs>([&](auto j) MR_INLINE { xs[j] = vld1q_s8(x.q[step][j][0]); });
    unrolled<4>([&](auto i) MR_INLINE {
      const int8x16_t w = vld1q_s8(q[step][i]);
      unrolled<pairs>([&](auto j) MR_INLINE { smmla(sums[i][j], w, xs[j]); });
    });
  });
}

template <int pairs>
MR_INLINE inline void add_mmla_scaled(const int32x4_t (&sums)[4][pairs], const float (&scale)[4][4],
                                      const MmlaXBlock& x, float32x4_t (&acc)[4][pairs]) {
  unrolled<4>([&](auto i) MR_INLINE {
    const float32x4_t w = vld1q_f32(scale[i]);
    unrolled<pairs>([&](auto j) MR_INLINE {
      acc[i][j] = vfmaq_f32(acc[i][j], vcvtq_f32_s32(sums[i][j]), vmulq_f32(w, load_twice(x.scale[j])));
    });
  });
}

template <int pairs, int scales, bool mins>
MR_INLINE inline void mmla_tile(const MmlaGroup<scales, mins>* w, int64_t groups, const MmlaXBlock* x,
                                float32x4_t (&acc)[4][pairs]) {
  unrolled<4>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { acc[i][j] = vdupq_n_f32(0); }); });
  for (int64_t g = 0; g < groups; ++g, ++w, ++x) {
    int32x4_t sums[4][pairs];
    if constexpr (scales == 2) {
      mmla_steps<pairs, 0, 2>(w->q, *x, sums);
      add_mmla_scaled<pairs>(sums, w->scale[0], *x, acc);
      mmla_steps<pairs, 2, 2>(w->q, *x, sums);
    } else {
      mmla_steps<pairs, 0, 4>(w->q, *x, sums);
    }
    add_mmla_scaled<pairs>(sums, w->scale[scales - 1], *x, acc);
    unrolled<mins ? scales : 0>([&](auto s) MR_INLINE {
      unrolled<4>([&](auto i) MR_INLINE {
        const float32x4_t min = vld1q_f32(w->min[s][i]);
        unrolled<pairs>([&](auto j) MR_INLINE { acc[i][j] = vfmaq_f32(acc[i][j], min, load_twice(x->sum[s][j])); });
      });
    });
  }
}

template <int pairs, int scales, bool mins>
__attribute__((noinline)) void multiply_mmla_tile(const LinearArgs& args, const MmlaGroup<scales, mins>* panel,
                                                  const MmlaXBlock* x, Stretch stretch, int64_t strip, int64_t row,
                                                  int64_t rows) {
  float32x4_t acc[4][pairs];
  mmla_tile<pairs>(panel, stretch.count, x, acc);
  write_pairs<pairs>(args, acc, strip, row, rows, stretch.first == 0);
}

struct MmlaMicro {
  template <class Format>
  using Group = MmlaGroup<Format::kScales, Format::kMins>;
  using XBlock = MmlaXBlock;
  static constexpr int kRows = 2 * MmlaXBlock::kPairs;
  static constexpr int64_t kJoined = 1, kStrips = MR_PANEL_STRIPS, kGroups = MR_PANEL_GROUPS;
  static constexpr size_t kBytes = kStrips * kGroups * sizeof(MmlaGroup<2, true>);

  template <class Format>
  MR_INLINE static void unpack(const typename Format::Block& block, int g, int, Group<Format>& to) {
    unrolled<2>([&](auto half) MR_INLINE {
      Weights w;
      Format::weights(block, g, half, w);
      unrolled<4>([&](auto step) MR_INLINE {
        const int32x4_t low = vreinterpretq_s32_s8(w[2 * step]), high = vreinterpretq_s32_s8(w[2 * step + 1]);
        vst1q_s8(to.q[step][2 * half], vreinterpretq_s8_s32(vzip1q_s32(low, high)));
        vst1q_s8(to.q[step][2 * half + 1], vreinterpretq_s8_s32(vzip2q_s32(low, high)));
      });
      const auto put_pairs = [&](float32x4_t v, float(&pairs)[4][4]) MR_INLINE {
        vst1q_f32(pairs[2 * half], vzip1q_f32(v, v));
        vst1q_f32(pairs[2 * half + 1], vzip2q_f32(v, v));
      };
      unrolled<Format::kScales>([&](auto s) MR_INLINE { put_pairs(scale_of<Format>(block, g, half, s), to.scale[s]); });
      if constexpr (Format::kMins) {
        const float32x4_t min = min_of<Format>(block, g, half, 0);
        put_pairs(min, to.min[0]);
        if constexpr (Format::kScales == 2) put_pairs(vsubq_f32(min_of<Format>(block, g, half, 1), min), to.min[1]);
      }
    });
  }

  template <class Format, int m>
  static void multiply(const LinearArgs& args, const Group<Format>* panel, const XBlock* x, Stretch stretch,
                       int64_t strip, int64_t row) {
    multiply_mmla_tile<(m + 1) / 2>(args, panel, x, stretch, strip, row, m);
  }
};
