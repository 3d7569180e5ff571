// Stable counting sort of (row, group) pairs by group. A row has a group once at most, so the rows of a group are a
// mask of bits: a pair's place is the place of the group's first pair plus the number of bits below its row. Masks are
// filled by atomic operations on integers, whose order changes nothing.
#pragma once

#include <cstdint>

namespace millrace {

// Sum of `own` over the threads of the block in front of this one. All threads call it; `sums`: shared memory, one
// integer per warp.
__device__ inline int sum_before(int own, int32_t* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int until = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(~0u, until, step);
    if (lane >= step) until += below;
  }
  if (lane == 31) sums[warp] = until;
  __syncthreads();
  int before = until - own;
  for (int other = 0; other < warp; ++other) before += sums[other];
  return before;
}

// Number of bits of `rows` below bit `row`.
__device__ inline int rows_below(uint32_t rows, int row) { return __popc(rows & ((1u << row) - 1)); }

}  // namespace millrace
