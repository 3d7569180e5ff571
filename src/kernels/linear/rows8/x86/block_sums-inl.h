// Results of 32 rows of weights by 32 rows of x. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/tuned.h"
#include "kernels/linear/rows8/x86/epilogue-inl.h"

// Partial results between the stretches of k. They are not kept in y: its rows are far apart, often by a power of two,
// and would evict each other from the caches.
struct alignas(64) BlockSums {
  float rows[32][32];  // [row of x][row of weights]
};

// As write_eight, for a complete sum.
MR_INLINE inline void write_sixteen(const LinearArgs& args, int64_t m, int64_t n, __m512 sums) {
  if (n + 16 > columns_of(args)) {
    write_eight(args, m, n, _mm512_castps512_ps256(sums), true);
    return write_eight(args, m, n + 8, _mm512_extractf32x8_ps(sums, 1), true);
  }
  float* y = args.y.row<float>(m) + n;
  if (args.bias != nullptr) sums = _mm512_add_ps(sums, _mm512_loadu_ps(args.bias + n));
  if (args.accumulate) sums = _mm512_add_ps(sums, _mm512_loadu_ps(y));
  _mm512_storeu_ps(y, sums);
}

inline void write_sums(const LinearArgs& args, const BlockSums& sums, int64_t strip, int64_t row, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < 2; ++i) {
      write_sixteen(args, row + r, (strip + 2 * i) * kPackedRows, _mm512_load_ps(sums.rows[r] + 16 * i));
    }
  }
}
