// Prompts on Hopper: tiles of 256 rows of a group's matrix times 128 of its pairs, multiplied by warpgroups.
//
// A block stays on its multiprocessor and takes one item (a tile of pairs, a block of rows) after the other. Its first
// warpgroup fills rings of shared memory and runs ahead into the next item; the other two multiply. Each of their eight
// warps has two tiles of 16 rows: the same rows of gate and of up in a gated layer, rows 128 apart otherwise.
// plain_prompt.cu and packed_prompt.cuh multiply 16-bit and quantized weights.
#pragma once

#include "kernels/grouped_linear/cuda/tile_copies.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/wgmma.cuh"

namespace millrace {

inline constexpr int kPromptRows = 256, kPromptPairs = 128;
inline constexpr int kPromptFeeders = 128, kPromptWarps = 8;  // threads that fill, warps that multiply
inline constexpr int kPromptThreads = kPromptFeeders + 32 * kPromptWarps;
inline constexpr int kPromptMostGroups = 512;                       // whose offsets fit into shared memory
inline constexpr int kPromptXBytes = kPromptPairs * kTileRowBytes;  // 64 columns of x

using PromptSums = float[2][kPromptPairs / 2];

// The sums of the first kPairs pairs.
template <int kPairs>
__device__ __forceinline__ float (&first_sums(float (&sums)[kPromptPairs / 2]))[kPairs / 2] {
  return reinterpret_cast<float(&)[kPairs / 2]>(sums);
}

struct PromptParams {
  GroupedParams p;
  int row_blocks;  // items of a tile of pairs
};
inline int prompt_row_blocks(const GroupedParams& p) {
  const int outputs = p.half > 0 ? kPromptRows / 2 : kPromptRows;
  return (p.outputs + outputs - 1) / outputs;
}

// An item as the feeding threads pass it to the warps that multiply. The feeding threads run ahead, so that these warps
// never wait for the pairs and their weights.
struct PromptItem {
  int pairs[kPromptPairs];
  float weights[kPromptPairs];  // of pairs, if their products are added up
  int group, count, rows;       // count 0: no further item; `rows`: index of the block of rows
};
inline constexpr int kPromptItems = 3;

// Slots of shared memory that one side fills and the other empties.
template <int kSlots_, int kBytes_>
struct PromptRing {
  static constexpr int kSlots = kSlots_, kBytes = kBytes_;
  uint8_t* data;
  uint64_t *full, *done;
  int slot = 0;
  uint32_t parity = 0;

  // `fills`: arrivals that fill a slot. Each warp that multiplies arrives once when it is done.
  __device__ __forceinline__ void init(int fills) const {
    for (int i = 0; i < kSlots; ++i) {
      init_barrier(full + i, fills);
      init_barrier(done + i, kPromptWarps);
    }
  }
  __device__ __forceinline__ uint8_t* own() const { return data + slot * kBytes; }
  __device__ __forceinline__ void wait_full() const { wait_barrier(full + slot, parity); }
  __device__ __forceinline__ void wait_done() const { wait_barrier(done + slot, parity ^ 1); }
  __device__ __forceinline__ void advance() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

// The items of a block, on both sides of the ring that passes them.
struct PromptItems {
  PromptRing<kPromptItems, sizeof(PromptItem)> ring;

  __device__ __forceinline__ PromptItem& own() const { return *reinterpret_cast<PromptItem*>(ring.own()); }

  // Calls `body(item)` for each item once all feeding threads have passed it on.
  template <class Body>
  __device__ __forceinline__ void feed(const PromptParams& f, const int32_t* offsets, Body body) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int index = static_cast<int>(blockIdx.x);; index += static_cast<int>(gridDim.x)) {
      const int of_pairs = index / f.row_blocks;
      const PairTile tile = find_tile(offsets, f.p.groups, kPromptPairs, of_pairs);
      ring.wait_done();
      PromptItem& item = own();
      const int pair = tile.count == 0 ? 0 : f.p.order[tile.first + (thread < tile.count ? thread : 0)];
      item.pairs[thread] = pair;
      item.weights[thread] = f.p.sum && tile.count > 0 ? f.p.pair_weights[pair] : 1;
      if (thread == 0) item.group = tile.group, item.count = tile.count, item.rows = index - of_pairs * f.row_blocks;
      arrive(ring.full + ring.slot);
      ring.wait_full();
      if (tile.count == 0) return;
      body(item);
      ring.advance();
    }
  }

  // The same on the other side: all lanes of a warp call it.
  template <class Body>
  __device__ __forceinline__ void take(Body body) {
    for (;; ring.advance()) {
      ring.wait_full();
      const PromptItem& item = own();
      if (item.count == 0) return;
      body(item);
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(ring.done + ring.slot);
    }
  }
};

// One feeding thread's copies of an item's rows of x: eight threads share a row. Rows beyond the item's pairs repeat
// another one or are what a slot had before: their products are dropped.
template <class T>
class PairCopies {
 public:
  __device__ PairCopies(const GroupedParams& p, const PromptItem& item)
      : column_(static_cast<int>(threadIdx.x) % 8 * 8), k_(p.k), count_(item.count) {
    const int first = static_cast<int>(threadIdx.x) / 8;
    to_ = tile_offset(first, static_cast<int>(threadIdx.x) % 8);
    const T* x = reinterpret_cast<const T*>(p.x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      from_[i] = x + p.x_row(item.pairs[first + i * kAtOnce]) * p.x_stride + column_;
    }
  }

  // Requests columns [64 step, 64 step + 64) for `barrier`; columns beyond k become zeros.
  __device__ __forceinline__ void start(uint8_t* tile, int step, uint64_t* barrier) const {
    const int column = step * kTileColumns;
    const bool live = column + column_ < k_;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i * kAtOnce >= count_) break;
      copy_if(tile + to_ + i * kAtOnce * kTileRowBytes, from_[i] + (live ? column : 0), live);
    }
    arrive_with_copies(barrier);
  }

 private:
  static constexpr int kAtOnce = kPromptFeeders / 8, kEach = kPromptPairs / kAtOnce;
  const T* from_[kEach];
  uint32_t to_;
  int column_, k_, count_;
};

// Moves registers from the feeding warpgroup, which needs few, to those that multiply.
__device__ __forceinline__ void release_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 56;"); }
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 224;"); }

}  // namespace millrace
