// Latent attention on Hopper for few query rows. A cluster of up to 16 blocks takes a tile of 16 query rows (tokens
// times heads) of a sequence and divides its positions. In each block a warp streams chunks of 64 latent rows by bulk
// copies, and eight warps multiply (few_rows.cuh). No second kernel: the blocks send each other their sums
// (few_sums.cuh).
//
// This file: parameters, shared memory, and the warp that copies.
#pragma once

#include "kernels/attention/cuda/decode/sums.cuh"
#include "kernels/attention/cuda/latent/row_map.cuh"
#include "kernels/attention/cuda/prefill/warpgroup.cuh"

namespace millrace {

struct LatentFewParams {
  DecodeParams decode;     // group: all heads; ranks: blocks of a cluster
  int box_rows = 0;        // of a copy from `rows`: divides a page and a chunk
  CUtensorMap rows, tail;  // tail: boxes of 16 rows, so that a sequence's last chunk reads no more than it has
};

struct FewTile {
  static constexpr int kTokens = 64, kLatent = 512, kKey = 576, kPanels = kKey / 64;
  static constexpr int kWarps = 8, kMultiplying = kWarps * 32, kThreads = kMultiplying + 128;
  static constexpr int kStages = 2, kMostRanks = 16;
  static constexpr int kPanelBytes = kTokens * 128, kChunkBytes = kPanels * kPanelBytes;
  static constexpr int kQueryPanelBytes = kTileRows * 128, kQueryBytes = kPanels * kQueryPanelBytes;
  static constexpr int kScores = kWarps * 2 * 32;  // float4; of a chunk: [half of the columns][16 positions][8][lane]
  static constexpr int kGroups = kLatent / 8;      // of eight columns: what a product has
  static constexpr int kSumBytes = kGroups * 32 * 16, kSummaryBytes = 8 * 16;
  static constexpr int kSharedBytes = 1024 + kStages * kChunkBytes + kQueryBytes + 2 * kScores * 16 + kSumBytes +
                                      kMostRanks * kSummaryBytes + 8 * (2 * kStages + 1);
  static_assert(kSharedBytes <= 227 * 1024);
};

struct FewSpace {
  uint32_t chunks, queries, barriers;
  float4* scores;     // two buffers that take turns
  float4* sums;       // from each rank its sums of this block's columns: [rank][group of columns][lane]
  float4* summaries;  // largest scores and totals of rows i and i + 8: [rank][i]

  __device__ explicit FewSpace(unsigned char* shared) {
    const uint32_t base = shared_address(shared);
    chunks = (base + 1023) / 1024 * 1024;
    queries = chunks + FewTile::kStages * FewTile::kChunkBytes;
    scores = reinterpret_cast<float4*>(shared + (queries + FewTile::kQueryBytes - base));
    sums = scores + 2 * FewTile::kScores;
    summaries = sums + FewTile::kGroups * 32;
    barriers = shared_address(summaries + FewTile::kMostRanks * 8);
  }
  __device__ uint32_t chunk(int turn) const { return chunks + turn % FewTile::kStages * FewTile::kChunkBytes; }
  __device__ CopyBarrier full(int turn) const { return CopyBarrier(barriers + turn % FewTile::kStages * 8); }
  __device__ CopyBarrier empty(int turn) const {
    return CopyBarrier(barriers + (FewTile::kStages + turn % FewTile::kStages) * 8);
  }
  __device__ CopyBarrier received() const { return CopyBarrier(barriers + 2 * FewTile::kStages * 8); }
  static __device__ int parity(int turn) { return turn / FewTile::kStages % 2; }
};

// The tile of a cluster and this block's share of its positions, in chunks; no rows: the sequence has no such tile.
__device__ inline Segment few_segment(const DecodeParams& p, const DeviceSlice& slice, int rank) {
  Segment s;
  s.sequence = static_cast<int>(blockIdx.z);
  s.slice = slice;
  s.first_row_of_tile = static_cast<int>(blockIdx.y) * kTileRows;
  s.rows = min(kTileRows, slice.rows * p.group - s.first_row_of_tile);
  if (s.rows <= 0) return s;
  const int last = slice.past + (slice.rows > 1 ? (s.first_row_of_tile + s.rows - 1) / p.group : 0);
  const int chunks = last / FewTile::kTokens + 1, shift = 31 - __clz(p.ranks);
  s.begin = chunks * rank >> shift;
  s.end = chunks * (rank + 1) >> shift;
  return s;
}

// One warp; lane i copies box i of every chunk.
class FewFeed {
 public:
  __device__ FewFeed(const LatentFewParams& w, const FewSpace& space)
      : w_(w), space_(space), lane_(static_cast<int>(threadIdx.x) % 32) {
    table_ = w.decode.args.tables + blockIdx.z * w.decode.args.table_pitch;
    held_ = table_[min(static_cast<int64_t>(lane_), w.decode.args.table_pitch - 1)];  // before the lengths are known
  }

  // Copies the segment's chunks as stages `turn` and following. Only rows of earlier steps may be read before the
  // preceding kernels end.
  __device__ void run(const Segment& s, int turn) {
    if (s.begin >= s.end) return;
    length_ = s.slice.past + s.slice.rows;
    int row = first_row(s.begin);
    for (int t = s.begin; t < s.end; ++t, ++turn) {
      const int next = first_row(t + 1);  // requested before this chunk waits for its stage
      if (!waited_ && (t + 1) * FewTile::kTokens > s.slice.past) wait();
      space_.empty(turn).wait(FewSpace::parity(turn) ^ 1);
      if (lane_ == 0) space_.full(turn).expect(FewTile::kChunkBytes);
      __syncwarp();
      const int box = lane_ * box_rows(t);
      if (box < FewTile::kTokens) {
        const void* map = is_tail(t) ? &w_.tail : &w_.rows;
        const uint32_t to = space_.chunk(turn) + box * 128;
#pragma unroll
        for (int panel = 0; panel < FewTile::kPanels; ++panel)
          copy_box(to + panel * FewTile::kPanelBytes, map, panel * 64, row, space_.full(turn));
      }
      __syncwarp();
      row = next;
    }
  }

  __device__ void wait() {
    if (!waited_) wait_for_predecessors();
    waited_ = true;
  }

 private:
  __device__ bool is_tail(int t) const { return (t + 1) * FewTile::kTokens > length_; }
  __device__ int box_rows(int t) const { return is_tail(t) ? kUnit : w_.box_rows; }

  // Row of the matrix where the lane's box of chunk t begins.
  __device__ int first_row(int t) const {
    const DecodeParams& p = w_.decode;
    const int position = t * FewTile::kTokens + lane_ * box_rows(t);
    const int page = p.page_of(min(position, length_ - 1));
    int at = __shfl_sync(~0u, held_, page % 32);
    if (page >= 32) at = table_[page];
    return position < length_ ? at * p.block_size + position - page * p.block_size : kOutsideRows;
  }

  const LatentFewParams& w_;
  const FewSpace& space_;
  const int32_t* table_;
  int lane_, held_, length_ = 0;
  bool waited_ = false;
};

}  // namespace millrace
