// Attention over latent rows (MLA): one row per token is the key of all heads, and its beginning is their value.
//
// The query rows of a sequence (tokens times heads) form tiles of 16. A block streams units of 16 latent rows through
// shared memory. Each warp owns 128 latent columns and 16 rotary ones, for scores and for values, so it copies and
// reads only these; warps exchange nothing but their parts of the scores. Blocks divide all work evenly by the true
// lengths (decode/line.cuh); a second kernel adds up the parts of tiles that several blocks share.
#pragma once

#include "kernels/attention/cuda/decode/line.cuh"

namespace millrace {

struct LatentParams {
  DecodeParams decode;  // group: all heads
  int blocks = 0;       // of the attention kernel
  int least_units = 1;  // of a part
  bool whole = false;   // one block per tile, which attends to all positions: nothing is left to add up
};

constexpr int kLatentRanks = 8;  // blocks of a cluster

template <int kLatentDim>
struct LatentConfig {
  static constexpr int kLatent = kLatentDim, kColumns = 128, kTurned = 16;  // kColumns + kTurned: of a warp
  static constexpr int kWarps = kLatent / kColumns, kThreads = kWarps * 32;
  static constexpr int kKey = kLatent + kWarps * kTurned;
  static constexpr int kBlocksPerSm = 8 / kWarps;
  static constexpr int kStages = 4;
  // Padded, so that the same piece of eight rows lies in different banks.
  static constexpr int kRowBytes = (kColumns + kTurned) * 2 + 16;
  static constexpr int kSlabBytes = kUnit * kRowBytes, kStageBytes = kWarps * kSlabBytes;  // slab: a warp's columns
  static constexpr int kScoreBytes = 2 * kWarps * 2 * 32 * 16;                             // [parity][warp][n][lane]
  static constexpr int kSharedBytes = kStages * kStageBytes + kScoreBytes;
  static constexpr int kSumStride = kLatent + 8;  // floats; of the sums that a cluster adds up in place of the stages
  static_assert(kTileRows * (kSumStride + 2) * 4 <= kSharedBytes);
  static_assert((kSharedBytes + 1024) * kBlocksPerSm <= 228 * 1024);
  static_assert(kSharedBytes <= 99 * 1024);  // GPUs outside data centres
};

}  // namespace millrace
