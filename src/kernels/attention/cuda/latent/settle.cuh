// Whether the unified maximum held for the rows of a tile, for kernels whose warps hold different columns of their
// sums.
#pragma once

#include "kernels/attention/cuda/decode/weigh.cuh"

namespace millrace {

// Whether the largest scores seen lie near the unified maximum, and the sums far from overflow, as decode/stream.cuh
// tests it. The sums then count from that maximum. The whole block calls it.
template <class T, int kColumns>
__device__ bool settle_unified(RowSums<kColumns>& sums, const float (&seen)[2], const float (&phi)[2]) {
  bool inside = true;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) inside &= fabsf(sums.o[n][i]) < 0x1p100f;  // false for NaN
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float largest = quad_max(seen[half]);
    if (largest <= kNoScore) continue;
    inside &= largest <= phi[half] + UnifiedRange<T>::kAbove && largest >= phi[half] - UnifiedRange<T>::kBelow;
    sums.largest[half] = phi[half];
  }
  return __syncthreads_and(inside ? 1 : 0) != 0;
}

}  // namespace millrace
