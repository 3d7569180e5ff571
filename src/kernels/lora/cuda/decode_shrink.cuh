// The first half of a decode's adapters: inner = A x of a group of rows, divided along k over the warps of a cluster.
#pragma once

#include "kernels/lora/cuda/decode.cuh"

namespace millrace {

inline constexpr int kChunk = 32;  // columns of A that a warp multiplies at a time: 8 of each of 4 lanes

// Partial sums of this warp for 16 * kTiles rows of A. A is constant, so its first kChunks chunks are requested before
// the preceding kernel ends.
template <class T, int kTiles, int kChunks>
__device__ __forceinline__ void shrink_tiles(const LoraDecodeParams& p, const LoraWeights& w, int first_rank,
                                             const T* x, float* sums_of_warp) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = lane / 4, first_column = lane % 4 * 8;
  const LoraShare chunks((p.k + kChunk - 1) / kChunk, cluster_rank() * kDecodeWarps + warp, p.cluster * kDecodeWarps);
  const uint64_t policy = evict_normal_policy();
  const T* a = reinterpret_cast<const T*>(w.a);
  float sums[kTiles][4] = {};
#pragma unroll 1
  for (int first = chunks.begin; first < chunks.end; first += kChunks) {
    uint4 as[kTiles][kChunks][2], xs[kChunks];
    const auto column = [&](int i) { return (first + i) * kChunk + first_column; };
    const auto is_live = [&](int i) { return first + i < chunks.end && column(i) < p.k; };
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kTiles; ++j) {
        const int rank = first_rank + 8 * j + row;
        as[j / 2][i][j % 2] = load_stream_if(a + int64_t{rank} * p.k + column(i), rank < w.rank && is_live(i), policy);
      }
    }
    wait_for_predecessors();
#pragma unroll
    for (int i = 0; i < kChunks; ++i) xs[i] = load_shared_input_if(x + column(i), x != nullptr && is_live(i));
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 low = as[tile][i][0], high = as[tile][i][1];
        mma<T>(sums[tile], low.x, high.x, low.y, high.y, xs[i].x, xs[i].y);
        mma<T>(sums[tile], low.z, high.z, low.w, high.w, xs[i].z, xs[i].w);
      }
    }
  }
  auto* to = reinterpret_cast<float2*>(sums_of_warp) + row * (kLoraGroup / 2) + lane % 4;
#pragma unroll
  for (int j = 0; j < 2 * kTiles; ++j)
    to[8 * j * (kLoraGroup / 2)] = {sums[j / 2][j % 2 * 2], sums[j / 2][j % 2 * 2 + 1]};
}

// As many chunks in flight as registers allow: one that is spilled would have to arrive first.
template <class T>
__device__ __forceinline__ void shrink_ranks(const LoraDecodeParams& p, const LoraWeights& w, int first_rank, int tiles,
                                             const T* x, float* sums_of_warp) {
  if (tiles == 1) return shrink_tiles<T, 1, 7>(p, w, first_rank, x, sums_of_warp);
  if (tiles == 2) return shrink_tiles<T, 2, 2>(p, w, first_rank, x, sums_of_warp);
  if (tiles == 3) return shrink_tiles<T, 3, 2>(p, w, first_rank, x, sums_of_warp);
  shrink_tiles<T, 4, 1>(p, w, first_rank, x, sums_of_warp);
}

// Requests this block's columns of A for the L2 cache: shrink_tiles() may only load a part of them early.
template <class T>
__device__ inline void prefetch_a(const LoraDecodeParams& p, const LoraWeights& w) {
  const LoraShare chunks((p.k + kChunk - 1) / kChunk, cluster_rank(), p.cluster);
  const int begin = chunks.begin * kChunk, end = min(p.k, chunks.end * kChunk);
  if (begin >= end) return;
  for (int rank = static_cast<int>(threadIdx.x); rank < w.rank; rank += kDecodeThreads) {
    prefetch_bytes(reinterpret_cast<const T*>(w.a) + int64_t{rank} * p.k + begin,
                   (end - begin) * static_cast<int>(sizeof(T)));
  }
}

// What inner is multiplied with: the scale, divided by the root mean square if x has not been. For a whole warp.
__device__ inline float inner_factor(const LoraDecodeParams& p, int row) {
  if (p.squares == nullptr) return p.scale;
  const int parts = p.k / 16;
  const float* squares = p.squares + int64_t{row} * parts;
  float sum = 0;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x) % 32; i < parts; i += 32) sum += __ldcg(squares + i);
  return p.scale * rsqrtf(warp_sum(sum) / static_cast<float>(p.k) + p.epsilon);
}

// The sums of this block go to all blocks of the cluster, `ranks` rows of eight.
__device__ inline void send_inner(const LoraDecodeParams& p, const LoraSums& sums, int ranks, int buffer,
                                  uint64_t* barrier) {
  const auto* of_warps = reinterpret_cast<const float2*>(sums.of_warps);
  auto* to = reinterpret_cast<float2*>(sums.received + (buffer * p.cluster + cluster_rank()) * p.pass_floats());
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < ranks * kLoraGroup / 2; i += kDecodeThreads) {
    float2 sum = of_warps[i];
#pragma unroll
    for (int warp = 1; warp < kDecodeWarps; ++warp) {
      const float2 other = of_warps[warp * p.pass_floats() / 2 + i];
      sum = {sum.x + other.x, sum.y + other.y};
    }
#pragma unroll 4
    for (int block = 0; block < p.cluster; ++block)
      send_cluster(cluster_address(to + i, block), sum, cluster_address(barrier, block));
  }
}

// Adds up what all blocks have sent.
__device__ inline void receive_inner(const LoraDecodeParams& p, const LoraSums& sums, int first_rank, int ranks,
                                     uint64_t* barriers) {
  const int pass = first_rank / kPassRanks, buffer = pass % 2;
  wait_barrier_cluster(barriers + buffer, static_cast<uint32_t>(pass / 2 % 2));
  const float* received = sums.received + buffer * p.cluster * p.pass_floats();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < ranks * kLoraGroup; i += kDecodeThreads) {
    float sum = 0;
#pragma unroll 4
    for (int block = 0; block < p.cluster; ++block) sum += received[block * p.pass_floats() + i];
    sums.inner[first_rank * kLoraGroup + i] = sum;
  }
  __syncthreads();
}

}  // namespace millrace
