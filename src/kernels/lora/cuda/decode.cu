#include "kernels/lora/cuda/decode_expand.cuh"
#include "kernels/lora/cuda/decode_shrink.cuh"

namespace millrace {
namespace {

// inner of the group, with `row` as this lane's: what a block computes, it sends to all blocks of the cluster. The last
// pass is left to receive.
template <class T>
__device__ __forceinline__ void shrink_group(const LoraDecodeParams& p, const LoraWeights& w,
                                             const LoraGroupRows& group, int64_t row, const LoraSums& sums,
                                             uint64_t* barriers) {
  const T* x = static_cast<const T*>(p.x.data) + row * p.x.stride;
  for (int first = 0; first < w.rank; first += kPassRanks) {
    const int tiles = min(kPassRanks / kTileRanks, (w.rank - first + kTileRanks - 1) / kTileRanks);
    const int buffer = first / kPassRanks % 2;
    if (first > 0) receive_inner(p, sums, first - kPassRanks, kPassRanks, barriers);
    if (threadIdx.x == 0)
      arrive_expecting(barriers + buffer, static_cast<uint32_t>(kLoraCluster * tiles * kTileFloats * sizeof(float)));
    shrink_tiles<T>(p, w, first, tiles, x, sums.of_warps, [&] {
      if (first > 0) return;
      prefetch_a<T>(p, w, tiles);
      prefetch_b<T>(group, w);
    });
    __syncwarp();
    if (first == 0) cluster_wait();  // the other blocks have started
    __syncthreads();
    send_inner(p, sums, tiles, buffer, barriers + buffer);
  }
}

template <class T, class Y, bool kGated>
__global__ void __launch_bounds__(kDecodeThreads, 2) lora_decode(const __grid_constant__ LoraDecodeParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL              // never launched elsewhere
  static_assert(kDecodeWarps == kLoraGroup);  // a warp for the factor of each row
  allow_dependents();
  // The grid may not end before the preceding kernel does, since the next kernel waits for this grid only.
  const auto leave = [] {
    if (blockIdx.x == 0) wait_for_predecessors();
  };
  __shared__ int rows[kLoraGroup];
  const LoraGroupRows found = find_lora_group(p, rows);
  if (found.count == 0) return leave();
  extern __shared__ float memory[];
  constexpr int kWords = sizeof(LoraWeights) / sizeof(uint32_t);
  __shared__ alignas(16) uint32_t words[2 * kWords];  // this layer's and the next one's matrices
  __shared__ alignas(8) uint64_t barriers[2];
  __shared__ float factors[kLoraGroup];
  __shared__ alignas(8) uint8_t group_bytes[sizeof(LoraGroupRows)];  // not in registers, which are all in use
  auto& group = reinterpret_cast<LoraGroupRows&>(group_bytes);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, group_row = thread % 32 / 4;
  if (thread < kWords) words[thread] = found.adapter >= 0 ? word_of(p.table + found.adapter, thread) : 0;
  copy_next(p, found.adapter, words + kWords);
  if (thread == 0) {
    group = found;
    init_barrier(barriers, 1);
    init_barrier(barriers + 1, 1);
    publish_barriers();
  }
  __syncthreads();
  const auto* both = reinterpret_cast<const LoraWeights*>(words);  // without matrices all zero
  const LoraWeights &w = both[0], &next = both[1];
  const bool is_wide = kGated || moves_by_eights<T>(p, w);
  if (!kGated && w.a == nullptr) {
    prefetch_next(p, group, next);
    return leave();
  }
  const LoraSums sums(p, memory);
  if (w.rank > 0) {
    cluster_arrive();
    shrink_group<T>(p, w, group, rows[group_row], sums, barriers);
  }
  wait_for_predecessors();
  const InnerFactor scale(p, rows[warp]);
  const auto finish_shrink = [&] {
    prefetch_next(p, group, next);
    if (w.rank == 0) return;
    const float factor = scale.value();
    if (thread % 32 == 0) factors[warp] = factor;
    const int last = (w.rank - 1) / kPassRanks * kPassRanks;
    receive_inner(p, sums, last, (w.rank - last + 15) / 16 * 16, barriers);
  };
  const int64_t row = rows[group_row];
  Y* y = group_row < group.count ? static_cast<Y*>(p.y.data) + row * p.y.stride : nullptr;
  if constexpr (kGated) {
    T* feed = static_cast<T*>(p.feed.data) + row * p.feed.stride;
    expand_gated<T>(p, group, w, sums.inner, factors, y, feed, finish_shrink);
  } else {
    const auto expand = [&](auto wide) {
      expand_group<decltype(wide)::value, T>(group, w, sums.inner, factors, y, finish_shrink);
    };
    is_wide ? expand(std::true_type()) : expand(std::false_type());
  }
#endif
}

template <class T, class Y, bool kGated>
CudaError launch_typed(const LoraDecodeParams& params, const CudaLaunch& launch) {
  const size_t shared = params.shared_bytes();
  constexpr size_t kAlwaysThere = 44 * 1024;  // besides static shared memory
  if (shared > kAlwaysThere) {
    const cudaError_t raised = cudaFuncSetAttribute(
        lora_decode<T, Y, kGated>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (raised != cudaSuccess) return raised;
  }
  return launch_kernel(lora_decode<T, Y, kGated>, dim3(static_cast<unsigned>(params.rows * kLoraCluster)),
                       kDecodeThreads, shared, launch, params, kLoraCluster);
}

template <class T>
CudaError launch_halves(const LoraDecodeParams& params, const CudaLaunch& launch) {
  if (params.feed.data != nullptr) return launch_typed<T, T, true>(params, launch);
  return params.y.dtype == DType::F32 ? launch_typed<T, float, false>(params, launch)
                                      : launch_typed<T, T, false>(params, launch);
}

}  // namespace

CudaError launch_lora_decode(const LoraDecodeParams& params, DType format, const CudaLaunch& launch) {
  return format == DType::F16 ? launch_halves<__half>(params, launch) : launch_halves<__nv_bfloat16>(params, launch);
}

}  // namespace millrace
