// Decode attention: each block streams its range of the line of work (split.h), each warp with its own pipeline.
//
// A warp takes every kWarps-th unit of 16 positions. The query rows that share a KV head fill the 16 rows of a
// tensor-core tile, so keys and values are read once. The stream has no barriers: warps synchronize only at the end of
// a pair, merge their sums in shared memory, and write the result, or a partial result that the last block of the pair
// combines.
//
// This file: launch parameters and block configuration.
#pragma once

#include "kernels/attention/cuda/decode/even_cut.h"
#include "kernels/attention/cuda/eight_bits.cuh"
#include "kernels/attention/cuda/launch.h"
#include "kernels/attention/cuda/mma.cuh"
#include "kernels/attention/cuda/split.h"
#include "kernels/cuda/stamps.cuh"

namespace millrace {

struct DecodeParams {
  CudaAttentionArgs args;
  int sequences = 0, kv_heads = 0, group = 0, block_size = 0;
  int block_shift = -1;          // block_size = 1 << block_shift; -1: not a power of two, pages are found by division
  int pairs_per_sequence = 0;    // maximum
  int most_tiles = 1;            // maximum tiles per KV head, in any sequence
  int ranks = 1;                 // blocks per cluster: a power of two
  bool deep = false;             // twice the stages, if a multiprocessor has only one block
  int held_stages = 0;           // stages with memory; if fewer than the maximum, no warp has more units
  float* partials = nullptr;     // [blocks][2][kTileRows][head_dim]
  float2* summaries = nullptr;   // [blocks][2][kTileRows]: maximum, total
  unsigned* counters = nullptr;  // [sequences][pairs_per_sequence]: zero before and after a launch
  // The same for the sums of groups of parts, by the place of a group's first part.
  float2* group_summaries = nullptr;
  unsigned* group_counters = nullptr;
  EvenCut cut;  // of persistent blocks
  Divisor by_pairs_per_sequence;
  Stamps stamps;

  __device__ int page_of(int position) const {
    return block_shift >= 0 ? position >> block_shift : position / block_size;
  }
};

// If there are too few blocks for two per multiprocessor, a block gets eight warps: a single warp per scheduler would
// mostly wait for its own results. Only for clusters, whose sums are merged in the stages.
inline constexpr int kUsualWarps = 4, kWideWarps = 8;

constexpr int cluster_stages(int head_dim) { return head_dim > 128 ? 2 : head_dim > 96 ? 3 : head_dim > 64 ? 4 : 6; }

// Units of 8 bits are half as large. One expanded unit per warp takes space, too.
constexpr int eight_bit_stages(int head_dim) { return head_dim > 128 ? 3 : head_dim > 96 ? 4 : head_dim > 64 ? 6 : 8; }
constexpr int cluster_stages(int head_dim, KvStore store) {
  return store == KvStore::Plain ? cluster_stages(head_dim) : eight_bit_stages(head_dim);
}

template <int kHeadDim, KvStore kStored = KvStore::Plain, int kWarpCount = kUsualWarps,
          int kStageCount = cluster_stages(kHeadDim, kStored)>
struct DecodeConfig {
  static constexpr KvStore kStore = kStored;
  static constexpr int kDim = kHeadDim, kWarps = kWarpCount, kThreads = kWarps * 32;
  static constexpr bool kWide = kWarps > kUsualWarps;
  static constexpr int kBlocksPerSm = kDim <= 128 && !kWide ? 2 : 1;
  static constexpr int kRowBytes = stored_row_bytes<kStore>(kDim);
  static constexpr int kUnitBytes = kUnit * kRowBytes;  // as stored
  // Per warp, in front of its stages: a unit of 8-bit keys or values as f16.
  static constexpr int kExpandedBytes = kStore == KvStore::Plain ? 0 : kUnit * kDim * 2;
  static constexpr int kStages = kStageCount;
  static constexpr bool kSharedQueries = kDim > 128;       // registers cannot hold them besides the sums
  static constexpr bool kLetsNextStartLate = kDim == 128;  // gains half a percent of a layer; heads of 64 lose that
  // Queries that are not kept in shared memory use the merge buffer.
  static constexpr int kQueryBytes = kSharedQueries ? kTileRows * kDim * 2 : 0;
  static constexpr int kMergeRows = 8;  // rows merged at a time
  static constexpr bool kMergePermutes = kDim % 32 == 0;
  static constexpr int kMergeStride = kMergePermutes ? kDim : kDim + 8;  // floats
  // Cluster: sums, largest score and total of every four columns, from all blocks.
  static constexpr int kReceived = (kTileRows * kDim / 4 + kThreads - 1) / kThreads * kThreads;
  static constexpr int kReceivedFloats = kReceived * 6;
  static constexpr int kMetFloats = kWide ? 0 : kWarps * kMergeRows * kMergeStride;
  static constexpr int kMergeFloats = kMetFloats > kReceivedFloats ? kMetFloats : kReceivedFloats;
  static_assert(kSharedQueries || kMergeFloats * 4 >= (kTileRows + 2) * kDim * 2);
  static constexpr int kSharedBytes = kWarps * (kStages * 2 * kUnitBytes + kExpandedBytes) + kMergeFloats * 4 +
                                      kWarps * kTileRows * 8 + 16 + kQueryBytes;
  static_assert((kSharedBytes + 1024) * kBlocksPerSm <= 228 * 1024);
  static constexpr int kDeepBytes = kSharedBytes + kWarps * kStages * 2 * kUnitBytes;
  static constexpr bool kHasDeep = kDeepBytes + 1024 <= 228 * 1024;

  // Puts a column of adjacent rows into different banks: by padding, or by permuting groups of eight where that saves
  // space.
  __device__ static int merge_at(int row, int column) {
    return row * kMergeStride + (kMergePermutes ? column ^ (row % 4 * 8) : column);
  }
};

// The line of work runs on every GPU. Fewer stages, and fewer warps for the largest heads, fit the 99 KB of shared
// memory that blocks have on GPUs outside data centres.
constexpr int line_warps(int head_dim) { return head_dim > 128 ? 2 : kUsualWarps; }
constexpr int line_stages(int head_dim) { return head_dim > 96 ? 2 : head_dim > 64 ? 3 : 4; }
constexpr int line_stages(int head_dim, KvStore store) {
  if (store == KvStore::Plain) return line_stages(head_dim);
  return head_dim > 128 ? 2 : head_dim > 96 ? 3 : head_dim > 64 ? 4 : 6;
}
template <int kHeadDim, KvStore kStored = KvStore::Plain>
struct LineConfig : DecodeConfig<kHeadDim, kStored, line_warps(kHeadDim), line_stages(kHeadDim, kStored)> {
  using Base = DecodeConfig<kHeadDim, kStored, line_warps(kHeadDim), line_stages(kHeadDim, kStored)>;
  static constexpr int kBlocksPerSm = kHeadDim <= 64 ? 3 : Base::kBlocksPerSm;
  static_assert(LineConfig::kSharedBytes <= 99 * 1024 &&
                (LineConfig::kSharedBytes + 1024) * kBlocksPerSm <= 228 * 1024);
};

constexpr int kMostFreshDim = 128;  // half a warp holds a whole key

}  // namespace millrace
