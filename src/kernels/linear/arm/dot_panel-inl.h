// The micro-kernel of panels for quad-wise dot products: 8 rows of weights by up to 4 rows of x, a scale per group.
// Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/arm/panel-inl.h"

template <int scales, bool mins>
struct DotGroup {
  float scale[scales][kPackedRows];
  float min[mins ? scales : 0][kPackedRows];  // the second one less the first
  int8_t q[8][kPackedRows][4];
};

// Sixteen elements from `first_quad` on: sums[half][row of x].
template <int m, int first_quad>
MR_INLINE inline void dot_sixteen(const int8_t (&q)[8][kPackedRows][4], const XBlock<4>& x, int32x4_t (&sums)[2][m]) {
  int8x16_t xs[m];
  unrolled<m>([&](auto r) MR_INLINE { xs[r] = vld1q_s8(x.q[r] + 4 * first_quad); });
  unrolled<4>([&](auto lane) MR_INLINE {
    const int8x16_t low = vld1q_s8(q[first_quad + lane][0]), high = vld1q_s8(q[first_quad + lane][4]);
    unrolled<m>([&](auto r) MR_INLINE { Dot::quad<lane>(sums[0][r], low, xs[r]); });
    unrolled<m>([&](auto r) MR_INLINE { Dot::quad<lane>(sums[1][r], high, xs[r]); });
  });
}

template <int m>
MR_INLINE inline void clear(int32x4_t (&sums)[2][m]) {
  unrolled<m>([&](auto r) MR_INLINE {
    sums[0][r] = zero_sum();
    sums[1][r] = zero_sum();
  });
}

template <int m>
MR_INLINE inline void add_scaled(const int32x4_t (&sums)[2][m], const float* scale, const XBlock<4>& x,
                                 float32x4_t (&acc)[2][m]) {
  unrolled<2>([&](auto half) MR_INLINE {
    const float32x4_t w = vld1q_f32(scale + 4 * half);
    unrolled<m>([&](auto r) MR_INLINE {
      acc[half][r] = vfmaq_f32(acc[half][r], vcvtq_f32_s32(sums[half][r]), vmulq_n_f32(w, x.scale[r]));
    });
  });
}

template <int m, int scales, bool mins>
MR_INLINE inline void dot_tile(const DotGroup<scales, mins>* w, int64_t groups, const XBlock<4>* x,
                               float32x4_t (&acc)[2][m]) {
  unrolled<m>([&](auto r) MR_INLINE { acc[0][r] = acc[1][r] = vdupq_n_f32(0); });
  for (int64_t g = 0; g < groups; ++g, ++w, ++x) {
    int32x4_t sums[2][m];
    clear<m>(sums);
    dot_sixteen<m, 0>(w->q, *x, sums);
    if constexpr (scales == 2) {
      add_scaled<m>(sums, w->scale[0], *x, acc);
      clear<m>(sums);
    }
    dot_sixteen<m, 4>(w->q, *x, sums);
    add_scaled<m>(sums, w->scale[scales - 1], *x, acc);
    unrolled<mins ? scales : 0>([&](auto s) MR_INLINE {
      unrolled<2>([&](auto half) MR_INLINE {
        const float32x4_t min = vld1q_f32(w->min[s] + 4 * half);
        unrolled<m>([&](auto r) MR_INLINE { acc[half][r] = vfmaq_n_f32(acc[half][r], min, x->sum[s][r]); });
      });
    });
  }
}

template <int m, int scales, bool mins>
__attribute__((noinline)) void multiply_dot_tile(const LinearArgs& args, const DotGroup<scales, mins>* panel,
                                                 const XBlock<4>* x, Stretch stretch, int64_t strip, int64_t row) {
  float32x4_t acc[2][m];
  dot_tile<m>(panel, stretch.count, x, acc);
  unrolled<m>([&](auto r) MR_INLINE {
    write_four(args, row + r, strip * kPackedRows, acc[0][r], stretch.first == 0);
    write_four(args, row + r, strip * kPackedRows + 4, acc[1][r], stretch.first == 0);
  });
}

struct DotMicro {
  template <class Format>
  using Group = DotGroup<Format::kScales, Format::kMins>;
  using XBlock = ::millrace::XBlock<4>;
  static constexpr int kRows = 4;
  static constexpr int64_t kJoined = 1, kStrips = MR_PANEL_STRIPS, kGroups = MR_PANEL_GROUPS;
  static constexpr size_t kBytes = kStrips * kGroups * sizeof(DotGroup<2, true>);

  template <class Format>
  MR_INLINE static void unpack(const typename Format::Block& block, int g, int, Group<Format>& to) {
    unrolled<2>([&](auto half) MR_INLINE {
      Weights w;
      Format::weights(block, g, half, w);
      unrolled<8>([&](auto j) MR_INLINE { vst1q_s8(to.q[j][4 * half], w[j]); });
      unrolled<Format::kScales>(
          [&](auto s) MR_INLINE { vst1q_f32(to.scale[s] + 4 * half, scale_of<Format>(block, g, half, s)); });
      if constexpr (Format::kMins) {
        const float32x4_t min = min_of<Format>(block, g, half, 0);
        vst1q_f32(to.min[0] + 4 * half, min);
        if constexpr (Format::kScales == 2) {
          vst1q_f32(to.min[1] + 4 * half, vsubq_f32(min_of<Format>(block, g, half, 1), min));
        }
      }
    });
  }

  template <class Format, int m>
  static void multiply(const LinearArgs& args, const Group<Format>* panel, const XBlock* x, Stretch stretch,
                       int64_t strip, int64_t row) {
    multiply_dot_tile<m>(args, panel, x, stretch, strip, row);
  }
};
