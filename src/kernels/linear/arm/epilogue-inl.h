// From sums to y: bias, accumulation, rows of weights that do not exist. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

// Four outputs of row m from column n on. `fresh`: no part of the sum has been written to y before.
inline void write_four(const LinearArgs& args, int64_t m, int64_t n, float32x4_t sums, bool fresh) {
  const int64_t count = args.weights->n - n;
  if (count <= 0) return;
  float* y = args.y.row<float>(m) + n;
  const bool add = args.accumulate || !fresh;
  if (count >= 4) {
    if (fresh && args.bias != nullptr) sums = vaddq_f32(sums, vld1q_f32(args.bias + n));
    if (add) sums = vaddq_f32(sums, vld1q_f32(y));
    return vst1q_f32(y, sums);
  }
  float each[4];
  vst1q_f32(each, sums);
  for (int64_t i = 0; i < count; ++i) {
    y[i] = each[i] + (fresh && args.bias != nullptr ? args.bias[n + i] : 0.0f) + (add ? y[i] : 0.0f);
  }
}

// The eight outputs of each row of x of a tile of matrix instructions: acc[pair of weights][pair of x], as
// [w0 x0, w0 x1, w1 x0, w1 x1].
template <int pairs>
MR_INLINE inline void write_pairs(const LinearArgs& args, const float32x4_t (&acc)[4][pairs], int64_t strip,
                                  int64_t row, int64_t rows, bool fresh) {
  unrolled<pairs>([&](auto j) MR_INLINE {
    unrolled<2>([&](auto half) MR_INLINE {
      const int64_t n = strip * kPackedRows + 4 * half;
      write_four(args, row + 2 * j, n, vuzp1q_f32(acc[2 * half][j], acc[2 * half + 1][j]), fresh);
      if (2 * j + 1 < rows) {
        write_four(args, row + 2 * j + 1, n, vuzp2q_f32(acc[2 * half][j], acc[2 * half + 1][j]), fresh);
      }
    });
  });
}
