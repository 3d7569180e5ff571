// Quantized weights in units of 16 x 256, for one to a few pairs of a group: products as in linear/cuda/quantized/
// mma.cuh, with the pairs' rows of x gathered into shared memory.
//
// Warps of a block share K of a tile of 16 rows, or take different tiles. In a gated layer tiles of gate and of up
// alternate.
#pragma once

#include "kernels/grouped_linear/cuda/grouped.cuh"
#include "kernels/linear/cuda/quantized/mma.cuh"

namespace millrace {

struct GroupedPackedParams {
  GroupedParams p;
  int units;        // along K
  int warps_k;      // warps that share K
  int units_chunk;  // units of K whose x is staged at a time; a multiple of warps_k
  int tokens;       // most pairs of a tile
};

// Adds up the warps' partial sums and stores the tile's outputs. `partials`: [warps_k][tiles][tokens][kTileStride].
template <int kTokens>
__device__ __forceinline__ void store_packed(const GroupedParams& p, const PairTile& tile, const float* partials,
                                             int warps_k, int tiles) {
  const int together = p.half > 0 ? 2 : 1, outputs = tiles / together * kTileRows;
  const int first = static_cast<int>(blockIdx.x) * outputs;
  const auto sum = [&](int of_tile, int token, int row) {
    float total = 0;
#pragma unroll 1
    for (int part = 0; part < warps_k; ++part) {
      total += partials[((part * tiles + of_tile) * kTokens + token) * kTileStride + row];
    }
    return total;
  };
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < outputs * tile.count; item += kPackedThreads) {
    const int at = item % outputs, token = item / outputs, of_tile = at / kTileRows * together, row = at % kTileRows;
    if (first + at >= p.outputs) continue;
    const float gate = sum(of_tile, token, row), up = together == 2 ? sum(of_tile + 1, token, row) : 0;
    store_pair(p, p.order[tile.first + token], tile.group, first + at, gate, up);
  }
}

template <DType kFormat, int kGroups>
__global__ void __launch_bounds__(kPackedThreads, packed_blocks_resident(kFormat, kGroups))
    grouped_packed(const __grid_constant__ GroupedPackedParams packed) {
  using U = Unit<kFormat>;
  constexpr int kTokens = 8 * kGroups;
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ int rows[kTokens];
  const GroupedParams& p = packed.p;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warps_k = packed.warps_k, tiles = kPackedWarps / warps_k;
  wait_and_let_next_kernel_start();
  const PairTile pairs = find_tile(p.offsets, p.groups, kTokens, static_cast<int>(blockIdx.y));
  if (pairs.count == 0) return;
  const int live = pairs.count;
  if (static_cast<int>(threadIdx.x) < live) rows[threadIdx.x] = p.x_row(p.order[pairs.first + threadIdx.x]);

  // Tiles beyond the matrix repeat its last one; their products are dropped.
  int tile = static_cast<int>(blockIdx.x) * tiles + warp / warps_k;
  if (p.half > 0) {
    const int of_half = min(tile / 2, p.half / kUnitRows - 1);
    tile = tile % 2 * (p.half / kUnitRows) + of_half;
  } else {
    tile = min(tile, (p.n - 1) / kUnitRows);
  }
  int at = warp % warps_k;
  const auto* from = reinterpret_cast<const uint8_t*>(p.matrix(pairs.group)) +
                     (static_cast<int64_t>(tile) * packed.units + at) * U::kSize;
  UnitFragment<kFormat> unit;
  if (at < packed.units) {
    unit.meta.load(from, lane);
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) unit.load_quarter(from, lane, quarter);
  }

  StagedX<kFormat, kGroups> staged(shared, live, packed.units_chunk);
  const auto row_of = [&](int token) { return reinterpret_cast<const __nv_bfloat16*>(p.x) + rows[token] * p.x_stride; };
  float sums[kGroups][4] = {};
  for (int chunk = 0; chunk < packed.units; chunk += packed.units_chunk) {
    const int chunk_end = min(packed.units, chunk + packed.units_chunk);
    __syncthreads();  // the rows are known, and all warps have left the chunk before
    staged.fill(row_of, p.k, live, chunk, chunk_end - chunk, warp, kPackedWarps);
    __syncthreads();
    const __nv_bfloat16* x[kGroups];  // missing pairs repeat the last one; their sums are not stored
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      x[group] =
          staged.x + min(group * 8 + lane / 4, live - 1) * staged.stride + (at - chunk) * kUnitColumns + 8 * (lane % 4);
    }
    const float* starts = staged.sums + (at - chunk) * 8 * staged.kBlockSums + lane % 4 * 4;
#pragma unroll 1
    while (at < chunk_end) {
      at += warps_k;
      from += warps_k * U::kSize;
      UnitMeta<kFormat> next;
      if (at < packed.units) next.load(from, lane);
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        multiply_block<kFormat, kGroups>(unit, 2 * quarter, x, starts, sums);
        multiply_block<kFormat, kGroups>(unit, 2 * quarter + 1, x, starts, sums);
        if (at < packed.units) unit.load_quarter(from, lane, quarter);
      }
      unit.meta = next;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) x[group] += warps_k * kUnitColumns;
      starts += warps_k * 8 * staged.kBlockSums;
    }
  }

  __syncthreads();  // partial sums overwrite x
  float* partials = reinterpret_cast<float*>(shared);
  put_sums<kFormat, kGroups>(partials + (warp % warps_k * tiles + warp / warps_k) * kTokens * kTileStride, sums);
  __syncthreads();
  store_packed<kTokens>(p, pairs, partials, warps_k, tiles);
}

template <DType kFormat, int kGroups>
cudaError_t launch_grouped_packed(const GroupedPackedParams& params, dim3 grid, const CudaStep& step) {
  const int staged = StagedX<kFormat, kGroups>::bytes(params.tokens, params.units_chunk);
  const int partials = kPackedWarps * 8 * kGroups * kTileStride * 4;
  LaunchShape shape;
  shape.grid = grid;
  shape.threads = kPackedThreads;
  shape.shared_bytes = static_cast<size_t>(max(staged, partials));
  return launch_kernel(grouped_packed<kFormat, kGroups>, shape, step, params);
}

// packed_*.cu instantiate the formats, so that they compile in parallel.
#define MILLRACE_GROUPED_INSTANCES(PREFIX, F)                                                                        \
  PREFIX template cudaError_t launch_grouped_packed<DType::F, 1>(const GroupedPackedParams&, dim3, const CudaStep&); \
  PREFIX template cudaError_t launch_grouped_packed<DType::F, 4>(const GroupedPackedParams&, dim3, const CudaStep&);

}  // namespace millrace
