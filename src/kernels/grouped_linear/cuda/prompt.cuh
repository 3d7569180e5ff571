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
inline constexpr int kPromptMostGroups = 512;
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

inline int prompt_blocks(const PromptParams& f, const Hardware& hardware) {
  const int64_t items = most_tiles(f.p.pairs, f.p.groups, kPromptPairs) * f.row_blocks;
  return static_cast<int>(std::min<int64_t>(items, hardware.cores));
}

// An item as the feeding threads pass it to the warps that multiply. They run ahead, so that nobody waits for the
// loads behind it.
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
// its first one: their products are dropped.
template <class T>
class PairCopies {
 public:
  __device__ PairCopies(const GroupedParams& p, const PromptItem& item)
      : column_(static_cast<int>(threadIdx.x) % 8 * 8), k_(p.k) {
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
      copy_if(tile + to_ + i * kAtOnce * kTileRowBytes, from_[i] + (live ? column : 0), live);
    }
    arrive_with_copies(barrier);
  }

 private:
  static constexpr int kAtOnce = kPromptFeeders / 8, kEach = kPromptPairs / kAtOnce;
  const T* from_[kEach];
  uint32_t to_;
  int column_, k_;
};

// Activations of eight outputs. The choice is made once, so that the code of each runs in a line.
__device__ __forceinline__ void gate_eight(const GroupedParams& p, float (&v)[8], const float (&up)[8]) {
  const auto each = [&](auto activate) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = activate(v[i], up[i]);
  };
  if (p.activation == Activation::Silu) return each([](float g, float u) { return g / (1 + __expf(-g)) * u; });
  if (p.activation == Activation::ClampedSwiglu) {
    return each([&](float g, float u) { return clamped_swiglu(g, u, p.clamp); });
  }
  each([&](float g, float u) { return gated_value(p, g, u); });
}

// Stores the outputs of a warp's two tiles for the pairs of an item, sixteen pairs at a time through shared memory.
class PromptOutputs {
 public:
  static constexpr int kPitch = 16 + 4;  // floats of a pair; spreads the pairs over the banks
  static constexpr int kTileFloats = 16 * kPitch, kBytes = 2 * kTileFloats * 4;  // of a warp

  // `warp`: of those that multiply.
  __device__ PromptOutputs(const GroupedParams& p, float* shared, int warp)
      : p_(p), own_(shared + warp * 2 * kTileFloats), lane_(static_cast<int>(threadIdx.x) % 32), warp_(warp) {
    whole_ = p.y.dtype != DType::F32 && p.outputs % 8 == 0 && p.y.stride % 8 == 0 &&
             reinterpret_cast<uintptr_t>(p.y.data) % 16 == 0;
  }

  __device__ __forceinline__ void store(const PromptItem& item, const PromptSums& sums, float factor) const {
    const int first = item.rows * (p_.half > 0 ? kPromptRows / 2 : kPromptRows) + 16 * warp_;
#pragma unroll 1  // much code, of which only the registers of a chunk differ
    for (int chunk = 0; 16 * chunk < item.count; ++chunk) {
#pragma unroll
      for (int i = 0; i < kPromptPairs / 16; ++i) {
        if (i == chunk) put(sums, i, factor);
      }
      __syncwarp();
      const int at = 16 * chunk + lane_ / 2;
      const int pair = at < item.count ? item.pairs[at] : -1;
      if (p_.half > 0) {
        store_gated(item.group, pair, first);
      } else {
        store_plain(item.group, pair, item.weights[at], first, 0);
        store_plain(item.group, pair, item.weights[at], first + kPromptRows / 2, 1);
      }
      __syncwarp();
    }
  }

 private:
  __device__ __forceinline__ void put(const PromptSums& sums, int chunk, float factor) const {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int pair = i / 4 * 8 + lane_ % 4 * 2 + i % 2, row = lane_ / 4 + i / 2 % 2 * 8;
        own_[tile * kTileFloats + pair * kPitch + row] = sums[tile][8 * chunk + i] * factor;
      }
    }
  }
  // Eight outputs of the lane's pair, from `output` on, with their bias.
  __device__ __forceinline__ void take(int group, int tile, int output, int row, float (&v)[8]) const {
    const float* from = own_ + tile * kTileFloats + lane_ / 2 * kPitch + lane_ % 2 * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 four = reinterpret_cast<const float4*>(from)[i];
      v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
    }
    if (p_.bias == nullptr) return;
    const float* bias = p_.bias + static_cast<int64_t>(group) * p_.n + row;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (output + i < p_.outputs) v[i] += bias[i];
    }
  }
  __device__ __forceinline__ void store_gated(int group, int pair, int first) const {
    const int output = first + lane_ % 2 * 8;
    if (pair < 0) return;
    float v[8], up[8];
    take(group, 0, output, output, v);
    take(group, 1, output, p_.half + output, up);
    gate_eight(p_, v, up);
    store_eight(pair, output, v);
  }
  __device__ __forceinline__ void store_plain(int group, int pair, float weight, int first, int tile) const {
    const int output = first + lane_ % 2 * 8;
    if (pair < 0) return;
    float v[8];
    take(group, tile, output, output, v);
#pragma unroll
    for (float& value : v) value *= weight;
    store_eight(pair, output, v);
  }
  __device__ __forceinline__ void store_eight(int pair, int output, const float (&v)[8]) const {
    if (output >= p_.outputs) return;
    if (!whole_) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (output + i < p_.outputs) p_.y.set(pair, output + i, v[i]);
      }
      return;
    }
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (p_.y.dtype == DType::BF16) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        words[i] = *reinterpret_cast<const uint32_t*>(&two);
      } else {
        const __half2 two = __floats2half2_rn(within_half(v[2 * i]), within_half(v[2 * i + 1]));
        words[i] = *reinterpret_cast<const uint32_t*>(&two);
      }
    }
    auto* to = reinterpret_cast<uint4*>(p_.y.data + (pair * p_.y.stride + output) * 2);
    *to = {words[0], words[1], words[2], words[3]};
  }

  const GroupedParams& p_;
  float* own_;
  int lane_, warp_;
  bool whole_;  // eight outputs are 16 aligned bytes
};

inline constexpr int kPromptOutputBytes = kPromptWarps * PromptOutputs::kBytes;

// Registers of the feeding threads and of the multiplying ones.
__device__ __forceinline__ void release_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 56;"); }
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 224;"); }

}  // namespace millrace
