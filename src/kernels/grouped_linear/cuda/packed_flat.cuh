// Quantized weights on Hopper for the few pairs that each group has at decode. As in linear/cuda/quantized/flat.cuh,
// registers hold the scaled weights, which are the first operand of warpgroup products.
//
// Two blocks run on a multiprocessor, and each takes one item (a tile of pairs, 128 rows of the group's matrix) after
// the other. One warp fills a ring of slots, eight units of weights and 256 columns of x each, and runs ahead into the
// next item, so that weights stream while the other warps store their results. In a gated layer four warps have rows
// of gate, and the other four the same rows of up.
#pragma once

#include "kernels/grouped_linear/cuda/tile_copies.cuh"
#include "kernels/grouped_linear/cuda/unit_tile.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/scaled_fragments.cuh"
#include "kernels/linear/cuda/quantized/wgmma_registers.cuh"

namespace millrace {

inline constexpr int kFlatItemWarps = 8, kFlatItemTiles = kFlatItemWarps;  // tiles of 16 rows
inline constexpr int kFlatMostGroups = 512;

struct GroupedFlatParams {
  GroupedParams p;
  int units;       // along K
  int row_blocks;  // items of a tile of pairs
};

template <DType kFormat, int kPairs_>
struct GroupedFlatShape {
  static constexpr int kPairs = kPairs_, kThreads = 32 * (kFlatItemWarps + 1), kBlocks = 2;
  static constexpr int kBoxBytes = kPairs * kTileRowBytes, kXBytes = kUnitColumns / kTileColumns * kBoxBytes;
  static constexpr int kUnitsBytes = kFlatItemTiles * Unit<kFormat>::kSize;
  static constexpr int kUpBytes = kFlatItemWarps / 2 * (kPairs / 2) * 32 * 4;  // products with up
  static constexpr int kRoom = 110 * 1024;  // half of a multiprocessor's shared memory, less the static part
  static constexpr int kSlots = (kRoom - 1024 - kUpBytes) / (kXBytes + kUnitsBytes);
  static constexpr size_t kSharedBytes = 1024 + kUpBytes + kSlots * (kXBytes + kUnitsBytes);
  static_assert(kSlots >= 2 && kPairs <= 32);  // a lane holds what the store needs to know about one pair
};

// The ring of a block.
template <class S>
struct FlatSlots {
  uint8_t *x, *units;
  uint64_t *full, *done;
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ uint8_t* own_x() const { return x + slot * S::kXBytes; }
  __device__ __forceinline__ uint8_t* own_units() const { return units + slot * S::kUnitsBytes; }
  __device__ __forceinline__ void advance() {
    if (++slot < S::kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

struct FlatItem {
  PairTile pairs;
  int rows;  // index of the block of rows
};
__device__ __forceinline__ FlatItem flat_item(const GroupedFlatParams& f, const int32_t* offsets, int size, int index) {
  const int tile = index / f.row_blocks;
  return {find_tile(offsets, f.p.groups, size, tile), index - tile * f.row_blocks};
}

// Run by one warp. Lane i copies units of tile i. Rows of x beyond the tile's pairs keep what the slot held: they only
// affect products that nobody stores.
template <DType kFormat, class S>
__device__ __forceinline__ void fill_slots(const GroupedFlatParams& f, const int32_t* offsets, FlatSlots<S> ring) {
  constexpr int kSize = Unit<kFormat>::kSize;
  const GroupedParams& p = f.p;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* x = reinterpret_cast<const __nv_bfloat16*>(p.x);
  for (int index = static_cast<int>(blockIdx.x);; index += static_cast<int>(gridDim.x)) {
    const FlatItem item = flat_item(f, offsets, S::kPairs, index);
    if (item.pairs.count == 0) break;
    const int row = lane < item.pairs.count ? p.x_row(p.order[item.pairs.first + lane]) : 0;
    const int tile = unit_tile<kFlatItemTiles>(p, item.rows, lane % kFlatItemTiles);
    const auto* from =
        reinterpret_cast<const uint8_t*>(p.matrix(item.pairs.group)) + static_cast<int64_t>(tile) * f.units * kSize;
#pragma unroll 1
    for (int unit = 0; unit < f.units; ++unit, from += kSize) {
      uint64_t* full = ring.full + ring.slot;
      wait_barrier(ring.done + ring.slot, ring.parity ^ 1);
      if (lane == 0) arrive_expecting(full, S::kUnitsBytes);
      __syncwarp();
      if (lane < kFlatItemTiles) copy_bulk(ring.own_units() + lane * kSize, from, kSize, full);
      const int column = unit * kUnitColumns + lane * 8;
      uint8_t* to = ring.own_x() + lane / 8 * S::kBoxBytes;
#pragma unroll 4
      for (int i = 0; i < item.pairs.count; ++i) {
        const int64_t of = __shfl_sync(~0u, row, i);
        copy_if(to + tile_offset(i, lane % 8), column < p.k ? x + of * p.x_stride + column : x, column < p.k);
      }
      arrive_with_copies(full);
      ring.advance();
    }
  }
  wait_copies<0>();
}

template <DType kFormat, class S>
__device__ __forceinline__ void multiply_item(FlatSlots<S>& ring, int units, float (&sums)[S::kPairs / 2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* unit = nullptr;
  QuarterBits<kFormat> bits;
  RaisedScales<kFormat> scales;
  uint32_t a[2][4][4];  // one is decoded while the products of the other run
  const auto begin_unit = [&] {
    wait_barrier(ring.full + ring.slot, ring.parity);
    publish_tile();  // x was written by ordinary copies
    unit = ring.own_units() + warp * Unit<kFormat>::kSize;
    bits.load(unit, lane, 0);
    scales.load(unit, lane);
    scale_quarter<kFormat>(bits, scales, 0, lane, a[0]);
    bits.load(unit, lane, 1);
  };
  begin_unit();
#pragma unroll 1
  for (int i = 0; i < units; ++i) {
    const uint64_t x = matrix_descriptor(ring.own_x());
    uint64_t* done = ring.done + ring.slot;
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      begin_products();
#pragma unroll
      for (int part = 0; part < 4; ++part) {  // descriptors count units of 16 bytes: 16 elements are 2
        RegisterProduct<S::kPairs>::run(sums, a[quarter % 2][part], x + quarter * (S::kBoxBytes / 16) + 2 * part);
      }
      commit_products();
      if (quarter > 0) wait_products<1>();
      if (quarter < 3) {
        scale_quarter<kFormat>(bits, scales, quarter + 1, lane, a[(quarter + 1) % 2]);
        if (quarter < 2) bits.load(unit, lane, quarter + 2);
      } else {
        ring.advance();
        if (i + 1 < units) begin_unit();
      }
    }
    wait_products<0>();  // the compiler serializes products that are in flight across the end of the loop
    __syncwarp();
    if (lane == 0) arrive(done);
  }
}

// Barriers of the warps that multiply: gate waits until up's products are there, up until they have been read.
__device__ __forceinline__ void meet_flat(int barrier) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "n"(32 * kFlatItemWarps) : "memory");
}
__device__ __forceinline__ void pass_flat(int barrier) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "n"(32 * kFlatItemWarps) : "memory");
}
inline constexpr int kUpIsThere = 1, kUpIsRead = 2;

// Multiplies and stores the items of a block. Run by all warps but the one that fills the slots.
template <DType kFormat, class S>
__device__ __forceinline__ void multiply_items(const GroupedFlatParams& f, const int32_t* offsets, FlatSlots<S> ring,
                                               float* ups) {
  const GroupedParams& p = f.p;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const bool gated = p.half > 0, is_up = gated && warp >= kFlatItemWarps / 2;
  const int tiles = gated ? kFlatItemTiles / 2 : kFlatItemTiles;  // that have outputs
  float* own_up = ups + warp % (kFlatItemWarps / 2) * (S::kPairs / 2) * 32 + lane;
  bool has_ups = false;
  for (int index = static_cast<int>(blockIdx.x);; index += static_cast<int>(gridDim.x)) {
    const FlatItem item = flat_item(f, offsets, S::kPairs, index);
    if (item.pairs.count == 0) break;
    const int output = (item.rows * tiles + warp % tiles) * kUnitRows + lane / 4;  // and eight further
    const int own_pair = lane < item.pairs.count ? p.order[item.pairs.first + lane] : 0;
    const float own_weight = p.sum && lane < item.pairs.count ? p.pair_weights[own_pair] : 1;
    float bias[2] = {0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (p.bias == nullptr || output + 8 * half >= p.outputs) continue;
      bias[half] = p.bias[static_cast<int64_t>(item.pairs.group) * p.n + (is_up ? p.half : 0) + output + 8 * half];
    }
    float sums[S::kPairs / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    multiply_item<kFormat>(ring, f.units, sums);
#pragma unroll
    for (int i = 0; i < S::kPairs / 2; ++i) sums[i] = fmaf(sums[i], kRaisedSumFactor<kFormat>, bias[i / 2 % 2]);
    if (is_up) {
      if (has_ups) meet_flat(kUpIsRead);
      has_ups = true;
#pragma unroll
      for (int i = 0; i < S::kPairs / 2; ++i) own_up[i * 32] = sums[i];
      pass_flat(kUpIsThere);
      continue;
    }
    if (gated) meet_flat(kUpIsThere);
#pragma unroll
    for (int group = 0; group < S::kPairs / 8; ++group) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 8 * group + 2 * (lane % 4) + i;
        const int pair = __shfl_sync(~0u, own_pair, at);
        const float weight = __shfl_sync(~0u, own_weight, at);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int sum = 4 * group + 2 * half + i;
          if (at >= item.pairs.count || output + 8 * half >= p.outputs) continue;
          const float value = gated ? gated_value(p, sums[sum], own_up[sum * 32]) : sums[sum];
          p.y.set(pair, output + 8 * half, value * weight);
        }
      }
    }
    if (gated) pass_flat(kUpIsRead);
  }
  if (has_ups) meet_flat(kUpIsRead);
}

template <DType kFormat, int kPairs>
__global__ void __launch_bounds__(GroupedFlatShape<kFormat, kPairs>::kThreads, 2)
    grouped_packed_flat(const __grid_constant__ GroupedFlatParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  using S = GroupedFlatShape<kFormat, kPairs>;
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * S::kSlots];
  __shared__ int32_t offsets[kFlatMostGroups + 1];
  uint8_t* slots = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const FlatSlots<S> ring{slots, slots + S::kSlots * S::kXBytes, barriers, barriers + S::kSlots};
  if (threadIdx.x < S::kSlots) {
    init_barrier(ring.full + threadIdx.x, 1 + 32);  // the bytes of units, and each lane's copies of x
    init_barrier(ring.done + threadIdx.x, kFlatItemWarps);
    publish_barriers();
  }
  wait_and_let_next_kernel_start();
  for (int i = static_cast<int>(threadIdx.x); i <= f.p.groups; i += S::kThreads) offsets[i] = f.p.offsets[i];
  __syncthreads();
  if (warp == kFlatItemWarps) {
    fill_slots<kFormat>(f, offsets, ring);
  } else {
    auto* ups = reinterpret_cast<float*>(slots + S::kSlots * (S::kXBytes + S::kUnitsBytes));
    multiply_items<kFormat>(f, offsets, ring, ups);
  }
#endif
}

template <DType kFormat, int kPairs>
cudaError_t launch_grouped_flat(const GroupedFlatParams& params, int blocks, const CudaStep& step) {
  using S = GroupedFlatShape<kFormat, kPairs>;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(blocks));
  shape.threads = S::kThreads;
  shape.shared_bytes = S::kSharedBytes;
  shape.most_shared = true;
  return launch_kernel(grouped_packed_flat<kFormat, kPairs>, shape, step, params);
}

// hopper_*.cu instantiate the formats, so that they compile in parallel.
#define MILLRACE_GROUPED_FLAT(PREFIX, F)                                                                         \
  PREFIX template cudaError_t launch_grouped_flat<DType::F, 16>(const GroupedFlatParams&, int, const CudaStep&); \
  PREFIX template cudaError_t launch_grouped_flat<DType::F, 32>(const GroupedFlatParams&, int, const CudaStep&);

}  // namespace millrace
