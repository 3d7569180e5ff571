// Prefill attention on Hopper: four warps load tiles of queries, keys and values, two warpgroups multiply.
#pragma once

#include "kernels/attention/cuda/prefill/warpgroup_feed.cuh"
#include "kernels/attention/cuda/prefill/warpgroup_rows.cuh"

namespace millrace {

// Processes all tiles of the block. If a product was not trustworthy (rare, extreme inputs), processes them again in
// careful mode.
template <class Share>
__device__ void run_tiles(const PrefillParams& p, Share share) {
  bool careful = p.args.scale <= 0;  // a negative scale makes the largest product the smallest score
#pragma unroll 1
  while (true) {
    const bool sound = share(careful);
    if (__syncthreads_or(sound || careful ? 0 : 1) == 0) return;
    careful = true;
  }
}

// The parts of a block's warps: two kinds of feeds, and rows that multiply.
template <class Keys, class Queries, class Rows, class Params, class Space>
__device__ void run_parts(const Params& w, const Space& space) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (threadIdx.x == 0) {
    prefetch_map(&w.keys);
    prefetch_map(&w.values);
    space.init_barriers();
  }
  allow_dependents();
  wait_for_predecessors();
  if (is_needless(w.prefill.args)) return;
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x < 32) {
      Keys feed(w, space);
      run_tiles(w.prefill, [&](bool) { return feed.run(), true; });
    } else {
      Queries feed(w, space);
      run_tiles(w.prefill, [&](bool) { return feed.run(), true; });
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    Rows rows(w, space, static_cast<int>(threadIdx.x) / 128 - 1);
    run_tiles(w.prefill, [&](bool careful) { return rows.run(careful); });
  }
#endif
}

template <class T, int kDim>
__global__ void __launch_bounds__(WarpgroupConfig<kDim>::kThreads, 1)
    prefill_warpgroup(const __grid_constant__ WarpgroupParams w) {
  extern __shared__ unsigned char shared_bytes[];
  const WarpgroupSpace<kDim> space(shared_address(shared_bytes));
  run_parts<KeyValueFeed<kDim>, QueryFeed<T, kDim>, WarpgroupRows<T, kDim>>(w, space);
}

}  // namespace millrace
