// Micro-kernel of int8 panels for dot products of quads. Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/rows8/arm/int8_panel-inl.h"

template <class Format>
struct DotGroup {
  float step[Format::kScales][kPackedRows];
  float min[kMinima<Format>][kPackedRows];
  int8_t q[8][kPackedRows][4];

  MR_INLINE void set(const typename Format::Block& block, int g) {
    unrolled<2>([&](auto half) MR_INLINE {
      Weights w;
      Format::weights(block, g, half, w);
      unrolled<8>([&](auto j) MR_INLINE { vst1q_s8(q[j][4 * half], w[j]); });
      unrolled<Format::kScales>([&](auto s)
                                    MR_INLINE { vst1q_f32(step[s] + 4 * half, step_of<Format>(block, g, half, s)); });
      unrolled<kMinima<Format>>([&](auto s)
                                    MR_INLINE { vst1q_f32(min[s] + 4 * half, min_step<Format>(block, g, half, s)); });
    });
  }
};

struct DotXBlock {
  float step[kPanelRows];
  float sum[2][kPanelRows];  // sums of the rounded x: all 32 elements, and the last 16
  int8_t q[2][kPanelRows][16];

  MR_INLINE void put(int64_t row, const Rounded32& v) {
    for (int i = 0; i < 2; ++i) vst1q_s8(q[i][row], v.q[i]);
  }
};

// Adds the products of four rows of weights with m rows of x, over the elements of scale `s` of a group.
template <class Format, int m, int half, int s>
MR_INLINE inline void add_dot_part(const DotGroup<Format>& w, const DotXBlock& x, float32x4_t (&acc)[m]) {
  constexpr int kSixteens = 2 / Format::kScales;
  int32x4_t sums[m];
  unrolled<m>([&](auto r) MR_INLINE { sums[r] = shifted_zero(); });
  unrolled<kSixteens>([&](auto i) MR_INLINE {
    constexpr int kSixteen = s * kSixteens + i;
    int8x16_t xs[m];
    unrolled<m>([&](auto r) MR_INLINE { xs[r] = vld1q_s8(x.q[kSixteen][r]); });
    unrolled<4>([&](auto lane) MR_INLINE {
      const int8x16_t ws = vld1q_s8(w.q[4 * kSixteen + lane][4 * half]);
      unrolled<m>([&](auto r) MR_INLINE { Dot::quad<lane>(sums[r], ws, xs[r]); });
    });
  });
  const float32x4_t step = vld1q_f32(w.step[s] + 4 * half);
  unrolled<m>([&](auto r) MR_INLINE { acc[r] = vfmaq_f32(acc[r], unshifted(sums[r]), vmulq_n_f32(step, x.step[r])); });
  if constexpr (Format::kMins) {
    const float32x4_t min = vld1q_f32(w.min[s] + 4 * half);
    unrolled<m>([&](auto r) MR_INLINE { acc[r] = vfmaq_n_f32(acc[r], min, x.sum[s][r]); });
  }
}

template <class Format, int m>
__attribute__((noinline)) void multiply_dot_tile(const LinearArgs& args, const DotGroup<Format>* w, const DotXBlock* x,
                                                 Stretch stretch, int64_t strip, int64_t row) {
  float32x4_t acc[2][m];
  unrolled<2>([&](auto half) MR_INLINE {
    unrolled<m>([&](auto r) MR_INLINE { acc[half][r] = vdupq_n_f32(0); });
    for (int64_t g = 0; g < stretch.count; ++g) {
      unrolled<Format::kScales>([&](auto s) MR_INLINE { add_dot_part<Format, m, half, s>(w[g], x[g], acc[half]); });
    }
  });
  write_tile<m>(args, strip, row, m, stretch.first == 0, [&](auto r, auto half) MR_INLINE { return acc[half][r]; });
}

struct DotMicro : Int8Micro<DotGroup, DotXBlock> {
  template <class Format, int m>
  static void multiply(const LinearArgs& args, const DotGroup<Format>* panel, const DotXBlock* x, Stretch stretch,
                       int64_t strip, int64_t row) {
    multiply_dot_tile<Format, m>(args, panel, x, stretch, strip, row);
  }
};
