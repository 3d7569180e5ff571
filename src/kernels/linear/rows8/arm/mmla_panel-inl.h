// Micro-kernel of int8 panels for SMMLA, which multiplies two rows of weights with two rows of x, eight elements each.
// Included inside a target region.
#pragma once

#include "kernels/linear/rows8/arm/int8_panel-inl.h"

// Inline assembly fixes the instruction order: the compiler keeps too few sums in flight.
MR_INLINE inline void smmla(int32x4_t& sum, int8x16_t w, int8x16_t x) {
  asm volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
}

struct MmlaMicro {
  // The sums of a pair of rows are [w0 x0, w0 x1, w1 x0, w1 x1]; the steps of the weights are stored in that order.
  struct WSuper {
    float step[4][4];
    int8_t q[kSuperGroups][4][4][16];  // [eight elements][pair of rows]

    MR_INLINE void put_step(int half, float32x4_t rows) {
      vst1q_f32(step[2 * half], vzip1q_f32(rows, rows));
      vst1q_f32(step[2 * half + 1], vzip2q_f32(rows, rows));
    }
    MR_INLINE void put(int64_t g, int half, const Weights& w) {
      unrolled<4>([&](auto i) MR_INLINE {
        const int32x4_t low = vreinterpretq_s32_s8(w[2 * i]), high = vreinterpretq_s32_s8(w[2 * i + 1]);
        vst1q_s8(q[g][i][2 * half], vreinterpretq_s8_s32(vzip1q_s32(low, high)));
        vst1q_s8(q[g][i][2 * half + 1], vreinterpretq_s8_s32(vzip2q_s32(low, high)));
      });
    }
  };
  struct XSuper {
    float step[kMostParts][kPanelRows];
    int64_t part_groups, unused;
    int8_t q[kSuperGroups][4][4][2][8];

    MR_INLINE void put_step(int64_t part, int64_t row, float value) { step[part][row] = value; }
    // Steps of a pair of rows, in the order of the sums.
    MR_INLINE float32x4_t steps_of(int64_t part, int pair) const {
      double both;  // one instruction loads and duplicates it
      std::memcpy(&both, step[part] + 2 * pair, sizeof both);
      return vreinterpretq_f32_f64(vdupq_n_f64(both));
    }
    MR_INLINE void put(int64_t g, int64_t row, const Rounded32& v) {
      for (int i = 0; i < 2; ++i) {
        vst1_s8(q[g][2 * i][row / 2][row % 2], vget_low_s8(v.q[i]));
        vst1_s8(q[g][2 * i + 1][row / 2][row % 2], vget_high_s8(v.q[i]));
      }
    }
  };

  template <int pairs>
  using Sums = int32x4_t[4][pairs];

  template <int pairs>
  MR_INLINE static void add_group(const WSuper& w, const XSuper& x, int64_t g, Sums<pairs>& sums) {
    unrolled<4>([&](auto step) MR_INLINE {
      int8x16_t xs[pairs];
      unrolled<pairs>([&](auto j) MR_INLINE { xs[j] = vld1q_s8(x.q[g][step][j][0]); });
      unrolled<4>([&](auto i) MR_INLINE {
        const int8x16_t ws = vld1q_s8(w.q[g][step][i]);
        unrolled<pairs>([&](auto j) MR_INLINE { smmla(sums[i][j], ws, xs[j]); });
      });
    });
  }

  template <int pairs>
  MR_INLINE static void add_scaled(const WSuper& w, const XSuper& x, int64_t part, const Sums<pairs>& sums,
                                   float32x4_t (&acc)[4][pairs]) {
    unrolled<4>([&](auto i) MR_INLINE {
      const float32x4_t ws = vld1q_f32(w.step[i]);
      unrolled<pairs>([&](auto j) MR_INLINE {
        acc[i][j] = vfmaq_f32(acc[i][j], unshifted(sums[i][j]), vmulq_f32(ws, x.steps_of(part, j)));
      });
    });
  }

  template <int rows>
  static void tile(const LinearArgs& args, const WSuper* w, const XSuper* x, const Supers& supers, int64_t super,
                   int64_t super_end, int64_t strip, int64_t row) {
    tile_of_pairs<(rows + 1) / 2>(args, w, x, supers, super, super_end, strip, row, rows);
  }

  template <int pairs>
  __attribute__((noinline)) static void tile_of_pairs(const LinearArgs& args, const WSuper* w, const XSuper* x,
                                                      const Supers& supers, int64_t super, int64_t super_end,
                                                      int64_t strip, int64_t row, int64_t rows) {
    const bool fresh = super == 0;
    float32x4_t acc[4][pairs];
    unrolled<4>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { acc[i][j] = vdupq_n_f32(0); }); });
    for (; super < super_end; ++super, ++w, ++x) {
      for_parts(*x, supers.size(super), [&](int64_t part, int64_t first, int64_t end) MR_INLINE {
        Sums<pairs> sums;
        unrolled<4>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { sums[i][j] = shifted_zero(); }); });
        for (int64_t g = first; g < end; ++g) add_group<pairs>(*w, *x, g, sums);
        add_scaled<pairs>(*w, *x, part, sums, acc);
      });
    }
    write_pairs<pairs>(args, acc, strip, row, rows, fresh);
  }
};
