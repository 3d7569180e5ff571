// Low-rank adapters of a decode step in one launch: what its two halves, shrink (A x) and expand (B inner), share.
//
// Up to eight rows of one adapter are a group, which one cluster computes: its blocks divide k, send their sums to each
// other and then divide the columns of y. Both halves are tensor-core products with the rows of the group as the side
// of eight, so that A and B are read once for the group. Each lane loads 16 bytes of a row and takes its elements in an
// order of its own, the same for both operands; nothing passes through shared memory but the sums.
#pragma once

#include "kernels/cuda/vectors.cuh"
#include "kernels/linear/cuda/barrier.cuh"
#include "kernels/lora/cuda/launch.h"

namespace millrace {

// Dynamic shared memory.
struct LoraSums {
  float *of_warps, *received, *inner;  // [warps][16][8], [buffers][blocks][ranks][8], [most_rank][8]
  __device__ LoraSums(const LoraDecodeParams& p, float* memory)
      : of_warps(memory),
        received(memory + kDecodeWarps * kTileFloats),
        inner(received + (p.most_rank > kPassRanks ? 2 : 1) * kLoraCluster * p.pass_floats()) {}
};

struct LoraGroupRows {
  int adapter = -1;               // in the table; -1: the rows have none
  int count = 0;                  // of rows; 0: the cluster has no work
  int block = 0, log_blocks = 0;  // this one among those, as a power of two, that divide the columns of y
};

// Eight rows of an adapter, or without one, are a group, and the clusters of the first ones compute it. For whole
// warps; `rows` gets the group's rows, the last one in the place of missing ones. Host copies have written the rows'
// adapters and the table before the step, so this need not wait for other kernels.
__device__ inline LoraGroupRows find_lora_group(const LoraDecodeParams& p, int* rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32, own = static_cast<int>(blockIdx.x) >> kLogCluster;
  const int adapter = p.adapters[own];
  const auto is_same = [&](int row) { return row < p.rows && p.adapters[min(row, p.rows - 1)] == adapter; };
  const bool low = is_same(lane), high = is_same(lane + 32);
  const uint64_t all = uint64_t{__ballot_sync(~0u, low)} | uint64_t{__ballot_sync(~0u, high)} << 32;
  const auto before = [&](int row) { return __popcll(all & ((uint64_t{1} << row) - 1)); };
  const int place = before(own), first = place / kLoraGroup * kLoraGroup, index = place - first;
  const int count = min(kLoraGroup, __popcll(all) - first), log_splits = min(31 - __clz(count), p.log_splits);
  if (threadIdx.x < 32) {
    const auto put = [&](int row) {
      const int i = before(row) - first;
      if (i >= 0 && i < count) rows[i] = row;
#pragma unroll 1
      for (int missing = i + 1; i == count - 1 && missing < kLoraGroup; ++missing) rows[missing] = row;
    };
    if (low) put(lane);
    if (high) put(lane + 32);
  }
  return {adapter, index >> log_splits == 0 ? count : 0, index * kLoraCluster + cluster_rank(),
          log_splits + kLogCluster};
}

// This block's part of `count` pieces of work, which 1 << log blocks divide.
struct LoraShare {
  int begin, end;
  __device__ LoraShare(int count, int index, int log) {
    const int each = (count + (1 << log) - 1) >> log;
    begin = min(count, index * each);
    end = min(count, begin + each);
  }
};

// Waits for this thread's copies into shared memory.
__device__ inline void wait_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Requests constant bytes, a multiple of 16, for the L2 cache.
__device__ inline void prefetch_bytes(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

__device__ inline uint32_t word_of(const LoraWeights* weights, int i) {
  return reinterpret_cast<const uint32_t*>(weights)[i];
}

// Copies what the next layer's table has for an adapter, for prefetch_next().
__device__ inline void copy_next(const LoraDecodeParams& p, int adapter, uint32_t* words) {
  constexpr int kCopies = sizeof(LoraWeights) / 16;
  static_assert(kCopies * 16 == sizeof(LoraWeights) && kCopies <= 32);
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kCopies) return;
  const bool has = p.next != nullptr && adapter >= 0;
  const auto* from = reinterpret_cast<const uint4*>(has ? p.next + adapter : p.table);
  copy_stream_if(words + 4 * i, from + i, has, evict_normal_policy());
}

// Requests A of the adapter's next layer, whose blocks may find no room before the kernel in front of them ends.
__device__ inline void prefetch_next(const LoraDecodeParams& p, const LoraGroupRows& group, const LoraWeights& next) {
  constexpr int kPiece = 4096;  // of a lane
  if (threadIdx.x >= 32) return;
  wait_copies();
  __syncwarp();
  if (next.a == nullptr || group.block >= kLoraCluster) return;
  const int bytes = min(p.most_next_bytes, next.rank * p.next_row_bytes);
  const LoraShare pieces((bytes + kPiece - 1) / kPiece, group.block, kLogCluster);
#pragma unroll 1
  for (int i = pieces.begin + static_cast<int>(threadIdx.x); i < pieces.end; i += 32)
    prefetch_bytes(next.a + int64_t{i} * kPiece, min(kPiece, bytes - i * kPiece));
}

}  // namespace millrace
