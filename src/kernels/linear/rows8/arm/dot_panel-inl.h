// Micro-kernel of int8 panels for dot products of quads. Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/rows8/arm/int8_panel-inl.h"

struct DotMicro {
  struct WSuper {
    float step[kPackedRows];
    int8_t q[kSuperGroups][8][kPackedRows][4];

    MR_INLINE void put_step(int half, float32x4_t rows) { vst1q_f32(step + 4 * half, rows); }
    MR_INLINE void put(int64_t g, int half, const Weights& w) {
      unrolled<8>([&](auto j) MR_INLINE { vst1q_s8(q[g][j][4 * half], w[j]); });
    }
  };
  struct XSuper {
    float step[kMostParts][kPanelRows];
    int64_t part_groups, unused;
    int8_t q[kSuperGroups][2][kPanelRows][16];

    MR_INLINE void put_step(int64_t part, int64_t row, float value) { step[part][row] = value; }
    MR_INLINE void put(int64_t g, int64_t row, const Rounded32& v) {
      for (int i = 0; i < 2; ++i) vst1q_s8(q[g][i][row], v.q[i]);
    }
  };

  template <int rows>
  using Sums = int32x4_t[2][rows];

  template <int rows>
  MR_INLINE static void add_group(const WSuper& w, const XSuper& x, int64_t g, Sums<rows>& sums) {
    unrolled<2>([&](auto sixteen) MR_INLINE {
      int8x16_t xs[rows];
      unrolled<rows>([&](auto r) MR_INLINE { xs[r] = vld1q_s8(x.q[g][sixteen][r]); });
      unrolled<4>([&](auto lane) MR_INLINE {
        unrolled<2>([&](auto half) MR_INLINE {
          const int8x16_t ws = vld1q_s8(w.q[g][4 * sixteen + lane][4 * half]);
          unrolled<rows>([&](auto r) MR_INLINE { Dot::quad<lane>(sums[half][r], ws, xs[r]); });
        });
      });
    });
  }

  template <int rows>
  __attribute__((noinline)) static void tile(const LinearArgs& args, const WSuper* w, const XSuper* x,
                                             const Supers& supers, int64_t super, int64_t super_end, int64_t strip,
                                             int64_t row) {
    const bool fresh = super == 0;
    float32x4_t acc[2][rows];
    unrolled<rows>([&](auto r) MR_INLINE { acc[0][r] = acc[1][r] = vdupq_n_f32(0); });
    for (; super < super_end; ++super, ++w, ++x) {
      for_parts(*x, supers.size(super), [&](int64_t part, int64_t first, int64_t end) MR_INLINE {
        Sums<rows> sums;
        unrolled<rows>([&](auto r) MR_INLINE {
          sums[0][r] = shifted_zero();
          sums[1][r] = shifted_zero();
        });
        for (int64_t g = first; g < end; ++g) add_group<rows>(*w, *x, g, sums);
        unrolled<2>([&](auto half) MR_INLINE {
          const float32x4_t step = vld1q_f32(w->step + 4 * half);
          unrolled<rows>([&](auto r) MR_INLINE {
            acc[half][r] = vfmaq_f32(acc[half][r], unshifted(sums[half][r]), vmulq_n_f32(step, x->step[part][r]));
          });
        });
      });
    }
    write_tile<rows>(args, strip, row, rows, fresh, [&](auto r, auto half) MR_INLINE { return acc[half][r]; });
  }
};
