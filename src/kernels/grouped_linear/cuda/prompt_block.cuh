// The course of a block that multiplies prompts (prompt.cuh), the same for all kinds of weights.
#pragma once

#include <type_traits>

#include "kernels/grouped_linear/cuda/prompt_outputs.cuh"

namespace millrace {

// `init()` prepares the barriers of the kernel's own rings. `feed(item)`, run by the feeding threads, fills these rings
// with an item. `multiply(pairs, warp, sums)`, run by the other warps, adds up the products of an item's first `pairs`
// pairs, a compile-time number; `factor` scales the sums. `shared`: kPromptOutputBytes.
template <class Init, class Feed, class Multiply>
__device__ __forceinline__ void run_prompt_block(const PromptParams& f, uint8_t* shared, float factor, Init init,
                                                 Feed feed, Multiply multiply) {
  __shared__ alignas(8) uint64_t barriers[2 * kPromptItems];
  __shared__ PromptItem slots[kPromptItems];
  __shared__ int32_t offsets[kPromptMostGroups + 1];
  PromptItems items{{reinterpret_cast<uint8_t*>(slots), barriers, barriers + kPromptItems}};
  if (threadIdx.x == 0) {
    init();
    items.ring.init(kPromptFeeders);
    publish_barriers();
  }
  wait_and_let_next_kernel_start();
  for (int i = static_cast<int>(threadIdx.x); i <= f.p.groups; i += kPromptThreads) offsets[i] = f.p.offsets[i];
  __syncthreads();
  if (threadIdx.x < kPromptFeeders) {
    release_registers();
    items.feed(f, offsets, feed);
    wait_copies<0>();
    return;
  }
  take_registers();
  const int warp = static_cast<int>(threadIdx.x) / 32 - kPromptFeeders / 32;
  const PromptOutputs outputs(f.p, shared, warp);
  items.take([&](const PromptItem& item) {
    PromptSums sums;
#pragma unroll
    for (int i = 0; i < kPromptPairs; ++i) sums[i % 2][i / 2] = 0;
    if (item.count <= kPromptPairs / 2) {
      multiply(std::integral_constant<int, kPromptPairs / 2>(), warp, sums);
    } else {
      multiply(std::integral_constant<int, kPromptPairs>(), warp, sums);
    }
    outputs.store(item, sums, factor);
  });
}

}  // namespace millrace
