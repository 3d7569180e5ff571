// Pipeline of a flat GEMM on Hopper: a loader warp keeps stages of weights and x in flight, warpgroups multiply them.
#pragma once

#include "kernels/cuda/stamps.cuh"
#include "kernels/linear/cuda/plain/flat_cut.h"
#include "kernels/linear/cuda/shared_norm.cuh"
#include "kernels/linear/cuda/wgmma.cuh"

namespace millrace {

// A block lets the next kernel start this many copies before its end, which covers the start-up time.
inline constexpr int kLetInBefore = 8;

struct WgmmaParams {
  int iterations, iterations_split;  // stages along K: in total, and per block of a cluster
  int rows;                          // per block; chosen to balance the multiprocessors
  int tall;                          // number of blocks with that many rows; the rest have one tile less
  int stages, splits, token_blocks;
  int received;  // byte offset at which the other block of a pair stores its sums
  bool late;     // lets the next kernel start with the last copies instead of at the start
  LinearOutput out;
  SharedNorm norm;
  Stamps stamps;
};

// A block has at most 64 rows per warpgroup; products of missing rows are discarded. After the warpgroups come the
// loader warp and the warps that compute the scales of a shared norm.
template <int kGroups, NormHalf kHalf>
struct Tile {
  static constexpr int kMultiplying = 128 * kGroups, kScaling = kHalf == NormHalf::Behind ? 4 : 0;  // threads, warps
  static constexpr int kThreads = kMultiplying + 32 * (1 + kScaling);
  // Two blocks must fit on a multiprocessor, of this kernel or of the next.
  static constexpr int kBlocks = kHalf == NormHalf::Behind ? 2 : 1;
};

struct Pipeline {
  uint8_t* stages;
  uint64_t *full, *empty;
  int weight_bytes, stage_bytes, copied_bytes;
};

// Code that runs once costs by its length (instruction fetch): avoid loops with a run-time count, which the compiler
// would unroll.
__device__ __forceinline__ void init_all(uint64_t* barriers, int arrivals) {
#pragma unroll
  for (int i = 0; i < kMaxStages; ++i) init_barrier(barriers + i, arrivals);
}

// A block's range of stages along K, and its first row and token.
struct Range {
  int begin, end, row, token;
  __device__ __forceinline__ int ahead(int stages) const { return min(end - begin, stages); }
};

// With one block of tokens each weight is read once, so it may be evicted first.
__device__ __forceinline__ uint64_t weight_policy(const WgmmaParams& p) {
  return p.token_blocks == 1 ? evict_first_policy() : evict_normal_policy();
}

// Weights do not depend on the previous kernel: the first stages are requested before that kernel ends and before this
// block's other warps have started.
__device__ __forceinline__ void ask_first_weights(const Pipeline& pipe, const CUtensorMap& weights,
                                                  const WgmmaParams& p, const Range& r) {
  const uint64_t policy = weight_policy(p);
#pragma unroll 1
  for (int i = 0; i < r.ahead(p.stages); ++i) {
    arrive_expecting(pipe.full + i, pipe.copied_bytes);
    copy_box(pipe.stages + i * pipe.stage_bytes, weights, (r.begin + i) * kDepth, r.row, pipe.full + i, policy);
  }
  p.stamps.mark(kAsked);
}

// Start of a block: the loader initializes barriers and issues copies before the other warps have started.
template <class Shape>
__device__ __forceinline__ void start_block(const Pipeline& pipe, const CUtensorMap& weights, const WgmmaParams& p,
                                            const Range& range) {
  p.stamps.start();
  if (!p.late) let_next_kernel_start();
  if (threadIdx.x != Shape::kMultiplying) return;
  init_all(pipe.full, 1);
  publish_barriers();
  ask_first_weights(pipe, weights, p, range);
}

// Requests x of the first stages once the previous kernel is complete.
__device__ __forceinline__ void ask_first_x(const Pipeline& pipe, const CUtensorMap& x, const WgmmaParams& p,
                                            const Range& r) {
  wait_for_previous_kernel();
  p.stamps.mark(kWaited);
#pragma unroll 1
  for (int i = 0; i < r.ahead(p.stages); ++i) {
    copy_box(pipe.stages + i * pipe.stage_bytes + pipe.weight_bytes, x, (r.begin + i) * kDepth, r.token, pipe.full + i);
  }
}

// Requests the remaining stages as buffers become free.
__device__ __forceinline__ void load_stages(const Pipeline& pipe, const CUtensorMap& weights, const CUtensorMap& x,
                                            const WgmmaParams& p, const Range& r) {
  const uint64_t policy = weight_policy(p);
  int stage = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int i = r.begin + r.ahead(p.stages); i < r.end; ++i) {
    uint8_t* to = pipe.stages + stage * pipe.stage_bytes;
    wait_barrier(pipe.empty + stage, parity);
    if (p.late && r.end - i == kLetInBefore) let_next_kernel_start();
    arrive_expecting(pipe.full + stage, pipe.copied_bytes);
    copy_box(to, weights, i * kDepth, r.row, pipe.full + stage, policy);
    copy_box(to + pipe.weight_bytes, x, i * kDepth, r.token, pipe.full + stage);
    if (++stage == p.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  if (p.late) let_next_kernel_start();
}

template <class T, int kTokens, int kGroups>
__device__ __forceinline__ void multiply_stages(const Pipeline& pipe, const WgmmaParams& p, int count,
                                                float (&sums)[kTokens / 2]) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  int stage = 0, previous = 0;
  uint32_t parity = 0;
  for (int i = 0; i < count; ++i) {
    const uint8_t* at = pipe.stages + stage * pipe.stage_bytes;
    wait_barrier(pipe.full + stage, parity);
    p.stamps.mark_first(kLanded + i);
    const uint64_t a = matrix_descriptor(at + group * 64 * kRowBytes);
    const uint64_t b = matrix_descriptor(at + pipe.weight_bytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {  // descriptors count units of 16 bytes: 16 elements are 2
      WarpgroupProduct<T, kTokens>::run(sums, a + 2 * step, b + 2 * step, i > 0 || step > 0);
    }
    commit_products();
    wait_products<1>();
    if (i > 0 && lane == 0) arrive(pipe.empty + previous);
    previous = stage;
    if (++stage == p.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  wait_products<0>();
}

}  // namespace millrace
