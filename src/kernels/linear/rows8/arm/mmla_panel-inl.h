// Micro-kernel of int8 panels for SMMLA, which multiplies two rows of weights with two rows of x, eight elements each.
// Included inside a target region.
#pragma once

#include "kernels/linear/rows8/arm/int8_panel-inl.h"

// Inline assembly fixes the instruction order: the compiler keeps too few sums in flight.
MR_INLINE inline void smmla(int32x4_t& sum, int8x16_t w, int8x16_t x) {
  asm volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
}

// The sums of a pair of rows are [w0 x0, w0 x1, w1 x0, w1 x1]; steps and minima of the weights are stored in that
// order.
template <class Format>
struct MmlaGroup {
  float step[Format::kScales][4][4];
  float min[kMinima<Format>][4][4];
  int8_t q[4][4][16];  // [eight elements][pair of rows]

  MR_INLINE static void put(float (&to)[4][4], int half, float32x4_t rows) {
    vst1q_f32(to[2 * half], vzip1q_f32(rows, rows));
    vst1q_f32(to[2 * half + 1], vzip2q_f32(rows, rows));
  }
  MR_INLINE void set(const typename Format::Block& block, int g) {
    unrolled<2>([&](auto half) MR_INLINE {
      Weights w;
      Format::weights(block, g, half, w);
      unrolled<4>([&](auto i) MR_INLINE {
        const int32x4_t low = vreinterpretq_s32_s8(w[2 * i]), high = vreinterpretq_s32_s8(w[2 * i + 1]);
        vst1q_s8(q[i][2 * half], vreinterpretq_s8_s32(vzip1q_s32(low, high)));
        vst1q_s8(q[i][2 * half + 1], vreinterpretq_s8_s32(vzip2q_s32(low, high)));
      });
      unrolled<Format::kScales>([&](auto s) MR_INLINE { put(step[s], half, step_of<Format>(block, g, half, s)); });
      unrolled<kMinima<Format>>([&](auto s) MR_INLINE { put(min[s], half, min_step<Format>(block, g, half, s)); });
    });
  }
};

struct MmlaXBlock {
  float step[kPanelRows];
  float sum[2][kPanelRows];  // sums of the rounded x: all 32 elements, and the last 16
  int8_t q[4][4][2][8];      // [eight elements][pair of rows]

  // Numbers of a pair of rows, in the order of the sums.
  MR_INLINE static float32x4_t of_pair(const float* rows, int pair) {
    double both;  // one instruction loads and duplicates it
    std::memcpy(&both, rows + 2 * pair, sizeof both);
    return vreinterpretq_f32_f64(vdupq_n_f64(both));
  }
  MR_INLINE void put(int64_t row, const Rounded32& v) {
    for (int i = 0; i < 2; ++i) {
      vst1_s8(q[2 * i][row / 2][row % 2], vget_low_s8(v.q[i]));
      vst1_s8(q[2 * i + 1][row / 2][row % 2], vget_high_s8(v.q[i]));
    }
  }
};

// Adds the products of four rows of weights with pairs of rows of x, over the elements of scale `s` of a group.
template <class Format, int pairs, int half, int s>
MR_INLINE inline void add_mmla_part(const MmlaGroup<Format>& w, const MmlaXBlock& x, float32x4_t (*acc)[pairs]) {
  constexpr int kEights = 4 / Format::kScales;
  int32x4_t sums[2][pairs];
  unrolled<2>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { sums[i][j] = shifted_zero(); }); });
  unrolled<kEights>([&](auto eight) MR_INLINE {
    constexpr int kEight = s * kEights + eight;
    int8x16_t xs[pairs];
    unrolled<pairs>([&](auto j) MR_INLINE { xs[j] = vld1q_s8(x.q[kEight][j][0]); });
    unrolled<2>([&](auto i) MR_INLINE {
      const int8x16_t ws = vld1q_s8(w.q[kEight][2 * half + i]);
      unrolled<pairs>([&](auto j) MR_INLINE { smmla(sums[i][j], ws, xs[j]); });
    });
  });
  unrolled<2>([&](auto i) MR_INLINE {
    const float32x4_t step = vld1q_f32(w.step[s][2 * half + i]);
    unrolled<pairs>([&](auto j) MR_INLINE {
      const float32x4_t both = vmulq_f32(step, MmlaXBlock::of_pair(x.step, j));
      acc[i][j] = vfmaq_f32(acc[i][j], unshifted(sums[i][j]), both);
    });
    if constexpr (Format::kMins) {
      const float32x4_t min = vld1q_f32(w.min[s][2 * half + i]);
      unrolled<pairs>([&](auto j)
                          MR_INLINE { acc[i][j] = vfmaq_f32(acc[i][j], min, MmlaXBlock::of_pair(x.sum[s], j)); });
    }
  });
}

template <class Format, int pairs>
__attribute__((noinline)) void multiply_mmla_tile(const LinearArgs& args, const MmlaGroup<Format>* w,
                                                  const MmlaXBlock* x, Stretch stretch, int64_t strip, int64_t row,
                                                  int64_t rows) {
  float32x4_t acc[4][pairs];
  unrolled<2>([&](auto half) MR_INLINE {
    unrolled<2>([&](auto i)
                    MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { acc[2 * half + i][j] = vdupq_n_f32(0); }); });
    for (int64_t g = 0; g < stretch.count; ++g) {
      unrolled<Format::kScales>([&](auto s)
                                    MR_INLINE { add_mmla_part<Format, pairs, half, s>(w[g], x[g], acc + 2 * half); });
    }
  });
  write_pairs<pairs>(args, acc, strip, row, rows, stretch.first == 0);
}

struct MmlaMicro : Int8Micro<MmlaGroup, MmlaXBlock> {
  template <class Format, int m>
  static void multiply(const LinearArgs& args, const MmlaGroup<Format>* panel, const MmlaXBlock* x, Stretch stretch,
                       int64_t strip, int64_t row) {
    multiply_mmla_tile<Format, (m + 1) / 2>(args, panel, x, stretch, strip, row, m);
  }
};
