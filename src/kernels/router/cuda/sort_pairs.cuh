// Stable counting sort of (row, expert) pairs by expert. Each warp takes a contiguous segment of the pairs. It counts
// its pairs of each expert; a scan over segments and experts turns the counts into first positions; then the warp
// places its pairs in order.
#pragma once

#include <cstdint>

namespace millrace {

// Pairs [begin, end) in steps of 32; `visit(pair, expert, peers)` runs on each lane with a pair. `peers`: lanes of the
// step with the same expert. The warp synchronizes between steps.
template <class Visit>
__device__ inline void for_each_step(const int32_t* chosen, int begin, int end, Visit visit) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = begin; first < end; first += 32) {
    const int pair = first + lane;
    const int expert = pair < end ? chosen[pair] : -1;
    const unsigned peers = __match_any_sync(~0u, expert);
    visit(pair, expert, peers);
    __syncwarp();
  }
}

// counts[expert] += the segment's pairs of it.
__device__ inline void count_pairs(const int32_t* chosen, int begin, int end, int32_t* counts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for_each_step(chosen, begin, end, [&](int, int expert, unsigned peers) {
    if (expert >= 0 && lane == __ffs(peers) - 1) counts[expert] += __popc(peers);
  });
}

// Writes the segment's pairs to order; positions[expert] is the place of its next pair.
__device__ inline void place_pairs(const int32_t* chosen, int begin, int end, int32_t* positions, int32_t* order) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for_each_step(chosen, begin, end, [&](int pair, int expert, unsigned peers) {
    int at = 0;
    if (expert >= 0) at = positions[expert];
    __syncwarp();
    if (expert < 0) return;
    order[at + __popc(peers & ((1u << lane) - 1))] = pair;
    if (lane == __ffs(peers) - 1) positions[expert] = at + __popc(peers);
  });
}

// Turns counts[segment][experts] into first positions and writes offsets[experts + 1]. Called by all threads of a block
// of at most 1024; `sums` is shared memory of 32 integers. Thread e handles expert e.
__device__ inline void scan_counts(int32_t* counts, int segments, int experts, int32_t* offsets, int32_t* sums) {
  const int e = static_cast<int>(threadIdx.x), lane = e % 32;
  int total = 0;
  constexpr int kAtOnce = 16;  // loads in flight
  int some[kAtOnce];
  const auto load_some = [&](int first_segment) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int segment = first_segment + i;
      some[i] = e < experts && segment < segments ? counts[segment * experts + e] : 0;
    }
  };
  for (int s = 0; s < segments; s += kAtOnce) {
    load_some(s);
#pragma unroll
    for (const int count : some) total += count;
  }
  int until = total;  // inclusive sum over the experts of the warp
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(~0u, until, step);
    if (lane >= step) until += below;
  }
  if (lane == 31) sums[e / 32] = until;
  __syncthreads();
  int first = until - total;
  for (int warp = 0; warp < e / 32; ++warp) first += sums[warp];
  if (e < experts) {
    offsets[e] = first;
    if (e == experts - 1) offsets[experts] = first + total;
    for (int s = 0; s < segments; s += kAtOnce) {
      load_some(s);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (s + i < segments) counts[(s + i) * experts + e] = first;
        first += some[i];
      }
    }
  }
  __syncthreads();
}

}  // namespace millrace
