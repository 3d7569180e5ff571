// Decode attention: each block streams its range of the line of work (split.h), each warp with a pipeline of its own.
//
// A warp takes every kWarps-th unit of 16 positions; the query rows that share a KV head fill the 16 rows of a
// tensor-core tile, so that keys and values are read once. No barrier stands in the stream: warps meet only where a
// pair ends, merge their sums in shared memory, and write the result, or a partial one that the last block of the pair
// to arrive combines.
//
// Here: what a launch is told, and how a block is made.
#pragma once

#include "kernels/attention/cuda/decode/even_cut.h"
#include "kernels/attention/cuda/launch.h"
#include "kernels/attention/cuda/mma.cuh"
#include "kernels/attention/cuda/split.h"
#include "kernels/cuda/stamps.cuh"

namespace millrace {

struct DecodeParams {
  CudaAttentionArgs args;
  int sequences = 0, kv_heads = 0, group = 0, block_size = 0;
  int block_shift = -1;          // block_size is this power of two; -1: it is none, and pages are found by dividing
  int pairs_per_sequence = 0;    // at most
  int most_tiles = 1;            // of a KV head, in any sequence
  int ranks = 1;                 // blocks of a cluster: a power of two
  bool deep = false;             // twice the stages, where a multiprocessor has one block only
  int held_stages = 0;           // that have memory: no warp has more units than that where they are fewer
  float* partials = nullptr;     // [blocks][2][kTileRows][head_dim]
  float2* summaries = nullptr;   // [blocks][2][kTileRows]: maximum, total
  unsigned* counters = nullptr;  // [sequences][pairs_per_sequence]: zero before and after a launch
  EvenCut cut;                   // of blocks that stay
  Divisor by_pairs_per_sequence;
  Stamps stamps;

  __device__ int page_of(int position) const {
    return block_shift >= 0 ? position >> block_shift : position / block_size;
  }
};

// A block of eight warps has a multiprocessor for itself, where there are too few blocks for two: one warp on each of
// its schedulers would wait for itself most of the time. Only for clusters, whose sums meet in the stages.
inline constexpr int kUsualWarps = 4, kWideWarps = 8;

constexpr int cluster_stages(int head_dim) { return head_dim > 128 ? 2 : head_dim > 96 ? 3 : head_dim > 64 ? 4 : 6; }

template <int kHeadDim, int kWarpCount = kUsualWarps, int kStageCount = cluster_stages(kHeadDim)>
struct DecodeConfig {
  static constexpr int kDim = kHeadDim, kWarps = kWarpCount, kThreads = kWarps * 32;
  static constexpr bool kWide = kWarps > kUsualWarps;
  static constexpr int kBlocksPerSm = kDim <= 128 && !kWide ? 2 : 1;
  static constexpr int kUnitBytes = kUnit * kDim * 2;
  static constexpr int kStages = kStageCount;
  static constexpr bool kSharedQueries = kDim > 128;       // registers would not hold them beside the sums
  static constexpr bool kLetsNextStartLate = kDim == 128;  // worth half a percent of a layer; heads of 64 lose that
  // Queries that are not kept there share the space where warps meet.
  static constexpr int kQueryBytes = kSharedQueries ? kTileRows * kDim * 2 : 0;
  static constexpr int kMergeRows = 8;  // rows merged at a time
  static constexpr bool kMergePermutes = kDim % 32 == 0;
  static constexpr int kMergeStride = kMergePermutes ? kDim : kDim + 8;  // floats
  // Of a cluster: sums, largest score and total of every four columns, from all blocks.
  static constexpr int kReceived = (kTileRows * kDim / 4 + kThreads - 1) / kThreads * kThreads;
  static constexpr int kReceivedFloats = kReceived * 6;
  static constexpr int kMetFloats = kWide ? 0 : kWarps * kMergeRows * kMergeStride;
  static constexpr int kMergeFloats = kMetFloats > kReceivedFloats ? kMetFloats : kReceivedFloats;
  static_assert(kSharedQueries || kMergeFloats * 4 >= (kTileRows + 2) * kDim * 2);
  static constexpr int kSharedBytes =
      kWarps * kStages * 2 * kUnitBytes + kMergeFloats * 4 + kWarps * kTileRows * 8 + 16 + kQueryBytes;
  static_assert((kSharedBytes + 1024) * kBlocksPerSm <= 228 * 1024);
  static constexpr int kDeepBytes = kSharedBytes + kWarps * kStages * 2 * kUnitBytes;
  static constexpr bool kHasDeep = kDeepBytes + 1024 <= 228 * 1024;

  // Neighbouring rows keep a column in different banks: by padding, or by permuting eights where that saves the space.
  __device__ static int merge_at(int row, int column) {
    return row * kMergeStride + (kMergePermutes ? column ^ (row % 4 * 8) : column);
  }
};

// The line of work runs on every GPU: fewer stages, and for the largest heads fewer warps, fit into the 99 KB of shared
// memory that blocks have on all but those of data centres.
constexpr int line_warps(int head_dim) { return head_dim > 128 ? 2 : kUsualWarps; }
constexpr int line_stages(int head_dim) { return head_dim > 96 ? 2 : head_dim > 64 ? 3 : 4; }
template <int kHeadDim>
struct LineConfig : DecodeConfig<kHeadDim, line_warps(kHeadDim), line_stages(kHeadDim)> {
  static_assert(LineConfig::kSharedBytes <= 99 * 1024);
};

constexpr int kMostFreshDim = 128;  // half a warp has all of a key

}  // namespace millrace
