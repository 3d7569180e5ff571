// Epilogue: bias, accumulation, rows beyond the end of the weights. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

// Writes four outputs of row m from column n on. `fresh`: y holds no earlier part of the sum.
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

// Writes eight outputs of each row from `row` on as two vectors, sums(row, half). Checks bounds and modes once for all.
template <int rows, class Sums>
MR_INLINE inline void write_tile(const LinearArgs& args, int64_t strip, int64_t row, int64_t valid, bool fresh,
                                 const Sums& sums) {
  const int64_t n = strip * kPackedRows;
  const bool add = args.accumulate || !fresh;
  if (n + kPackedRows > args.weights->n || (fresh && args.bias != nullptr) || valid < rows) {
    return unrolled<rows>([&](auto r) MR_INLINE {
      if (r >= valid) return;
      unrolled<2>([&](auto half) MR_INLINE { write_four(args, row + r, n + 4 * half, sums(r, half), fresh); });
    });
  }
  float* y = args.y.row<float>(row) + n;
  const int64_t stride = args.y.stride;
  if (add) {
    unrolled<rows>([&](auto r) MR_INLINE {
      unrolled<2>([&](auto half) MR_INLINE {
        float* to = y + r * stride + 4 * half;
        vst1q_f32(to, vaddq_f32(vld1q_f32(to), sums(r, half)));
      });
    });
  } else {
    unrolled<rows>([&](auto r) MR_INLINE {
      unrolled<2>([&](auto half) MR_INLINE { vst1q_f32(y + r * stride + 4 * half, sums(r, half)); });
    });
  }
}

// Writes the results of matrix instructions: acc[pair of rows of weights][pair of rows of x] holds [w0 x0, w0 x1, w1
// x0, w1 x1].
template <int pairs>
MR_INLINE inline void write_pairs(const LinearArgs& args, const float32x4_t (&acc)[4][pairs], int64_t strip,
                                  int64_t row, int64_t rows, bool fresh) {
  write_tile<2 * pairs>(args, strip, row, rows, fresh, [&](auto r, auto half) MR_INLINE {
    const float32x4_t a = acc[2 * half][r / 2], b = acc[2 * half + 1][r / 2];
    return r % 2 == 0 ? vuzp1q_f32(a, b) : vuzp2q_f32(a, b);
  });
}
