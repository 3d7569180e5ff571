// Quantized weights on Hopper for many pairs: weights are decoded and scaled in registers, which are the first operand
// of warpgroup products; the pairs' rows of x are the second one, gathered into shared memory.
//
// Each of eight warps has 16 rows. In a gated layer even warps have rows of gate, and odd warps the same rows of up,
// which they pass to their neighbour at the end. A step is 64 columns, a quarter of a unit.
#pragma once

#include "kernels/grouped_linear/cuda/staged_outputs.cuh"
#include "kernels/grouped_linear/cuda/tile_copies.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/scaled_fragments.cuh"
#include "kernels/linear/cuda/quantized/wgmma_registers.cuh"

namespace millrace {

inline constexpr int kPackedTilePairs = 64;

template <DType kFormat>
struct PackedTileShape {
  static constexpr int kPairs = kPackedTilePairs, kWarps = 8, kThreads = 32 * kWarps, kRows = kWarps * kUnitRows;
  static constexpr int kStages = 5;  // steps of x
  static constexpr int kStageBytes = kPairs * kTileRowBytes;
  static constexpr int kSlotBytes = kWarps * Unit<kFormat>::kSize;  // units of a block; there are two slots
  static constexpr int kBlocks = 2;
  static constexpr size_t kSharedBytes = static_cast<size_t>(kStages * kStageBytes + 2 * kSlotBytes) + 1024;
  static constexpr int kExchangeBytes = kWarps / 2 * kPairs / 2 * 32 * 4;  // products with up
  static_assert(kStages <= 6);  // the last quarter of a unit is read before its slot is requested again
  static_assert(StagedOutputs::bytes(kPairs, kRows) <= kStages * kStageBytes);
  static_assert(kExchangeBytes + StagedOutputs::bytes(kPairs, kRows / 2) <= kStages * kStageBytes);
};

// Stores the results of the block. `shared` holds no data in use.
template <class S>
__device__ __forceinline__ void store_packed_tile(const GroupedParams& p, const PairTile& pairs, float* shared,
                                                  const float (&sums)[S::kPairs / 2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const bool gated = p.half > 0;
  const int width = gated ? S::kRows / 2 : S::kRows, first = static_cast<int>(blockIdx.x) * width;
  StagedOutputs staged(shared + (gated ? S::kExchangeBytes / 4 : 0), width);
  float* from_up = shared + warp / 2 * (S::kPairs / 2) * 32 + lane;
  if (gated && warp % 2 == 1) {
#pragma unroll
    for (int i = 0; i < S::kPairs / 2; ++i) from_up[i * 32] = sums[i];
  }
  if (gated) __syncthreads();
  const int tile = gated ? warp / 2 : warp;
#pragma unroll
  for (int group = 0; group < S::kPairs / 8; ++group) {
    if (gated && warp % 2 == 1) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = 8 * group + 2 * (lane % 4) + i;
      if (at >= pairs.count) continue;
      const int pair = p.order[pairs.first + at];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int output = tile * kUnitRows + 8 * half + lane / 4, sum = 4 * group + 2 * half + i;
        if (first + output >= p.outputs) continue;
        const float up = gated ? from_up[sum * 32] : 0;
        staged.put(at, output, pair_output(p, pair, pairs.group, first + output, sums[sum], up));
      }
    }
  }
  __syncthreads();
  staged.store(p, pairs, first);
}

template <DType kFormat>
__global__ void __launch_bounds__(PackedTileShape<kFormat>::kThreads, PackedTileShape<kFormat>::kBlocks)
    grouped_packed_tiles(const __grid_constant__ GroupedParams p, int units) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  using S = PackedTileShape<kFormat>;
  using U = Unit<kFormat>;
  constexpr int kPairs = S::kPairs;
  extern __shared__ uint8_t raw[];
  uint8_t* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  uint8_t* own_slot = stages + S::kStages * S::kStageBytes + warp * U::kSize;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const PairTile pairs = find_tile(p.offsets, p.groups, kPairs, static_cast<int>(blockIdx.y));
  if (pairs.count == 0) return;

  // Tiles beyond the matrix repeat its last one; their products are dropped.
  int tile = static_cast<int>(blockIdx.x) * S::kWarps + warp;
  if (p.half > 0) {
    const int of_half = min(tile / 2, p.half / kUnitRows - 1);
    tile = tile % 2 * (p.half / kUnitRows) + of_half;
  } else {
    tile = min(tile, (p.n - 1) / kUnitRows);
  }
  const auto* weights =
      reinterpret_cast<const uint8_t*>(p.matrix(pairs.group)) + static_cast<int64_t>(tile) * units * U::kSize;
  const auto* x = reinterpret_cast<const __nv_bfloat16*>(p.x);
  const TileCopies<__nv_bfloat16, kPairs, S::kThreads> copies(
      [&](int i) { return i < pairs.count ? x + p.x_row(p.order[pairs.first + i]) * p.x_stride : nullptr; }, p.k);
  const auto request = [&](int step) {
    if (step < 4 * units) {
      copies.start(stages + step % S::kStages * S::kStageBytes, step, weights);
      if (step % 4 == 0) {  // a unit, which only this warp reads
        const uint8_t* from = weights + static_cast<int64_t>(step / 4) * U::kSize;
        uint8_t* to = own_slot + step / 4 % 2 * S::kSlotBytes;
        for (int i = lane * 16; i < U::kSize; i += 512) copy_if(to + i, from + i, true);
      }
    }
    commit_copies();  // one group for each step, even an empty one
  };

  float sums[kPairs / 2];
#pragma unroll
  for (float& sum : sums) sum = 0;
#pragma unroll
  for (int step = 0; step < S::kStages - 1; ++step) request(step);
  QuarterBits<kFormat> bits;
  RaisedScales<kFormat> scales;
  uint32_t a[2][4][4];  // one is decoded while the products of the other run
#pragma unroll 1
  for (int i = 0; i < units; ++i) {
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      const int step = 4 * i + quarter;
      const uint8_t* unit = own_slot + i % 2 * S::kSlotBytes;
      wait_copies<S::kStages - 2>();
      publish_tile();
      __syncthreads();  // the stage is complete, and all warps have left the one that is requested next
      request(step + S::kStages - 1);
      if (quarter == 0) {
        bits.load(unit, lane, 0);
        scales.load(unit, lane);
        scale_quarter<kFormat>(bits, scales, 0, lane, a[0]);
      }
      const uint64_t b = matrix_descriptor(stages + step % S::kStages * S::kStageBytes);
      begin_products();
#pragma unroll
      for (int part = 0; part < 4; ++part) RegisterProduct<kPairs>::run(sums, a[quarter % 2][part], b + 2 * part);
      commit_products();
      if (quarter < 3) {
        bits.load(unit, lane, quarter + 1);
        scale_quarter<kFormat>(bits, scales, quarter + 1, lane, a[(quarter + 1) % 2]);
      }
      wait_products<0>();
    }
  }
#pragma unroll
  for (float& sum : sums) sum *= kSumFactor<kFormat>;
  __syncthreads();  // results overwrite the stages
  store_packed_tile<S>(p, pairs, reinterpret_cast<float*>(stages), sums);
#endif
}

template <DType kFormat>
cudaError_t launch_packed_tiles(const GroupedParams& params, dim3 grid, const CudaStep& step) {
  using S = PackedTileShape<kFormat>;
  LaunchShape shape;
  shape.grid = grid;
  shape.threads = S::kThreads;
  shape.shared_bytes = S::kSharedBytes;
  return launch_kernel(grouped_packed_tiles<kFormat>, shape, step, params,
                       (params.k + kUnitColumns - 1) / kUnitColumns);
}

// packed_tiles_*.cu instantiate the formats, so that they compile in parallel.
#define MILLRACE_GROUPED_TILES(PREFIX, F) \
  PREFIX template cudaError_t launch_packed_tiles<DType::F>(const GroupedParams&, dim3, const CudaStep&);

}  // namespace millrace
