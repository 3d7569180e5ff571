// Routes the rows of a decode in one launch. A warp routes one row. The blocks are one cluster and read each other's
// masks of rows from shared memory, so that the pairs are sorted without a second launch.
#pragma once

#include "kernels/linear/cuda/device.cuh"
#include "kernels/router/cuda/route_row.cuh"
#include "kernels/router/cuda/sort_pairs.cuh"

namespace millrace {

inline constexpr int kTogetherWarps = 8, kTogetherThreads = 32 * kTogetherWarps;
inline constexpr int kMostTogetherBlocks = 8;  // the most that every GPU with clusters can run as one

// Two integers at p in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ uint2 load_cluster_two(const uint32_t* p, int rank) {
#if __CUDA_ARCH__ >= 900
  uint2 v;
  asm volatile("ld.shared::cluster.v2.u32 {%0,%1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "r"(cluster_address(p, rank))
               : "memory");
  return v;
#else
  return *reinterpret_cast<const uint2*>(p);  // there is one block
#endif
}

// Thread t sorts the groups 2 t and 2 t + 1.
template <int kEach, bool kPlain>
__global__ void __launch_bounds__(kTogetherThreads)
    route_together(const __grid_constant__ CudaRouterParams p, int groups, int32_t* order, int32_t* offsets) {
  static_assert(2 * kTogetherThreads == kMostExperts);
  using Row = RowOfExperts<kEach, kPlain>;
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ __align__(8) uint32_t rows_of[kMostExperts];  // [group]: bit w is row w of this block
  __shared__ int32_t places[kMostExperts];                 // of the block's first pair of a group
  __shared__ int32_t sums[kTogetherWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int row = block * kTogetherWarps + warp, each = p.each(), first = 2 * static_cast<int>(threadIdx.x);
  const RowScratch own(shared, p, warp);
  const typename Row::Biases biases(p);
  let_next_kernel_start();
  rows_of[first] = rows_of[first + 1] = 0;
  __syncthreads();
  wait_for_previous_kernel();
  if (row < p.rows) {
    Row(p, row, own, biases).route(p.chosen + row * each, p.weights + row * each);
    __syncwarp();
    for (int i = lane; i < each; i += 32) atomicOr(rows_of + own.chosen[i], 1u << warp);
  }
  __syncwarp();
  if (blocks > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  uint2 rows[kMostTogetherBlocks] = {};
  if (blocks > 1) {
#pragma unroll
    for (int other = 0; other < kMostTogetherBlocks; ++other) {
      rows[other] = load_cluster_two(rows_of + first, other < blocks ? other : block);
    }
  } else {
    rows[0] = *reinterpret_cast<const uint2*>(rows_of + first);
  }
  int before[2] = {0, 0}, total[2] = {0, 0};  // pairs in blocks in front of this one, and in all
#pragma unroll
  for (int other = 0; other < kMostTogetherBlocks; ++other) {
    const int counts[2] = {__popc(rows[other].x), __popc(rows[other].y)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (other < block) before[i] += counts[i];
      if (other < blocks) total[i] += counts[i];
    }
  }
  const int place = sum_before(total[0] + total[1], sums);
  places[first] = place + before[0];
  places[first + 1] = place + total[0] + before[1];
  if (block == 0) {
    if (first < groups) offsets[first] = place;
    if (first + 1 < groups) offsets[first + 1] = place + total[0];
    if (threadIdx.x == 0) offsets[groups] = p.rows * each;
  }
  __syncthreads();
  // A block may not end while others read its masks. This one has read theirs.
  if (blocks > 1) cluster_arrive();
  if (row < p.rows) {
    for (int i = lane; i < each; i += 32) {
      const int group = own.chosen[i];
      order[places[group] + rows_below(rows_of[group], warp)] = row * each + i;
    }
  }
  __syncwarp();
  if (blocks > 1) cluster_wait();
}

}  // namespace millrace
