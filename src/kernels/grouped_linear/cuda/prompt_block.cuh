// The course of a block that multiplies prompts (prompt.cuh), the same for all kinds of weights.
#pragma once

#include <type_traits>

#include "kernels/grouped_linear/cuda/prompt_outputs.cuh"

namespace millrace {

template <int kPairs>
using PairsTaken = std::integral_constant<int, kPairs>;

// Calls f(pairs) with the number of pairs to multiply, as a constant: at least `count`.
template <int kCluster, class F>
__device__ __forceinline__ void with_pairs(int count, F f) {
  if constexpr (kCluster > 1) {  // shares are multiples of kPromptStep
    if (count <= 32) return f(PairsTaken<32>());
    if (count > 64 && count <= 96) return f(PairsTaken<96>());
  }
  if (count <= 64) return f(PairsTaken<64>());
  f(PairsTaken<128>());
}

// The other blocks of a cluster may still write to this one.
template <int kCluster>
__device__ __forceinline__ void leave() {
  __syncwarp();
  if constexpr (kCluster > 1) cluster_meet();
}

// `init()` prepares the barriers of the kernel's own rings. `feed(item)`, run by the feeding threads, fills these rings
// with an item. `multiply(pairs, warp, sums)`, run by the other warps, adds up the products of an item's first `pairs`
// pairs, a compile-time number; `factor` scales the sums. `shared`: kPromptOutputBytes.
template <int kCluster = 1, class Init, class Feed, class Multiply>
__device__ __forceinline__ void run_prompt_block(const PromptParams& f, uint8_t* shared, float factor, Init init,
                                                 Feed feed, Multiply multiply) {
  __shared__ alignas(8) uint64_t barriers[2 * kPromptItems];
  __shared__ PromptItem slots[kPromptItems];
  __shared__ int32_t offsets[kPromptMostGroups + 1];
  PromptItems<kCluster> items{{reinterpret_cast<uint8_t*>(slots), barriers, barriers + kPromptItems}};
  if (threadIdx.x == 0) {
    init();
    items.ring.init(kPromptFeeders);
    publish_barriers();
  }
  begin_grouped(f.p);
  for (int i = static_cast<int>(threadIdx.x); i <= f.p.groups; i += kPromptThreads)
    offsets[i] = __ldcg(f.p.offsets + i);
  wait_for_input(f.p);
  if constexpr (kCluster > 1) {
    cluster_barrier();  // the other blocks' barriers are ready, too
  } else {
    __syncthreads();
  }
  if (threadIdx.x < kPromptFeeders) {
    release_registers();
    items.feed(f, offsets, feed);
    wait_copies<0>();
    leave<kCluster>();
    return;
  }
  take_registers();
  const int warp = static_cast<int>(threadIdx.x) / 32 - kPromptFeeders / 32;
  const PromptOutputs outputs(f.p, shared, warp);
  items.take([&](const PromptItem& item) {
    PromptSums sums;
#pragma unroll
    for (int i = 0; i < kPromptPairs; ++i) sums[i % 2][i / 2] = 0;
    with_pairs<kCluster>(item.count, [&](auto pairs) { multiply(pairs, warp, sums); });
    outputs.store(item, sums, factor);
  });
  leave<kCluster>();
}

}  // namespace millrace
