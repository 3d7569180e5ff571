// Flat GEMM over quantized weights: decoded in registers, multiplied with mma.sync, scaled block by block in f32.
//
// Stored numbers reach the tensor cores as q + Z, with Z from the decoding. A product of x with the constant -Z, taken as
// the initial sum, leaves exactly the products of x with q; the same constant product, divided by -Z, is the sum of x over
// the block that minima need. Warps share a block's rows and K: several row tiles side by side read x from the cache once.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/unit_fragments.cuh"

namespace millrace {

struct PackedShape {
  int warps_k;  // warps of a block that share K; the others take further row tiles
  int splits;   // blocks that share K
};

inline constexpr int kPackedWarps = 8;
inline constexpr int kPackedThreads = 32 * kPackedWarps;

struct PackedParams {
  const uint8_t* weights;
  const __nv_bfloat16* x;
  int64_t x_stride;
  int k, units, units_split;  // units along K in all, and per block of a cluster
  PackedShape shape;
  LinearOutput out;
};

// Eight elements of a token, at the lane's columns of a block.
template <DType kFormat>
__device__ __forceinline__ uint4 load_block_of_x(const __nv_bfloat16* x) {
  if constexpr (Unit<kFormat>::kSixBits) {
    const uint2 low = load_shared_input8(x), high = load_shared_input8(x + 16);
    return {low.x, low.y, high.x, high.y};
  } else {
    return load_shared_input(x);
  }
}

// sums += the products of one block of 32 columns with the tokens in x.
template <DType kFormat, int kGroups>
__device__ __forceinline__ void multiply_block(const UnitFragment<kFormat>& unit, int block, const uint4 (&x)[kGroups],
                                               float (&sums)[kGroups][4]) {
  using U = Unit<kFormat>;
  using T = __nv_bfloat16;
  constexpr uint32_t kMinusZero = U::kMinusZero;
  constexpr int kParts = U::kSixBits ? 2 : 1;  // runs of columns that share a scale
  uint32_t low[4], high[4], more_low[4], more_high[4];
  unit.decode(block, 0, low, more_low);
  unit.decode(block, 1, high, more_high);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const float2 scale_low = unit.scale_minimum(block, part, 0), scale_high = unit.scale_minimum(block, part, 1);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      float zero[4] = {0, 0, 0, 0};
      const int first = U::kSixBits ? part : 0, last = U::kSixBits ? part : 1;
#pragma unroll
      for (int j = first; j <= last; ++j) {
        mma<T>(zero, kMinusZero, kMinusZero, kMinusZero, kMinusZero, word(x[group], 2 * j), word(x[group], 2 * j + 1));
      }
      float products[4] = {zero[0], zero[1], zero[2], zero[3]};
#pragma unroll
      for (int j = first; j <= last; ++j) {
        const uint32_t b0 = word(x[group], 2 * j), b1 = word(x[group], 2 * j + 1);
        mma<T>(products, low[2 * j], high[2 * j], low[2 * j + 1], high[2 * j + 1], b0, b1);
        if constexpr (U::kWide) {
          mma<T>(products, more_low[2 * j], more_high[2 * j], more_low[2 * j + 1], more_high[2 * j + 1], b0, b1);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 s = i < 2 ? scale_low : scale_high;
        sums[group][i] = fmaf(s.x, products[i], sums[group][i]);
        if constexpr (U::kMinimum) sums[group][i] = fmaf(s.y * (-1.f / U::kZero), zero[i], sums[group][i]);
      }
    }
  }
}

// Blocks 2 quarter and 2 quarter + 1 of a unit. `x` is the lane's token of the first group at its first column of the unit;
// `columns` are left from there to the end of K.
template <DType kFormat, int kGroups>
__device__ __forceinline__ void multiply_quarter(const UnitFragment<kFormat>& unit, int quarter, const __nv_bfloat16* x,
                                                 int64_t group_stride, int tokens, int columns,
                                                 float (&sums)[kGroups][4]) {
  constexpr int kAhead = kGroups <= 2 ? 2 : 1;  // blocks of x loaded together
#pragma unroll
  for (int first = 2 * quarter; first < 2 * quarter + 2; first += kAhead) {
    uint4 xs[kAhead][kGroups];
#pragma unroll
    for (int b = 0; b < kAhead; ++b) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int at = 32 * (first + b);
        const bool live = group * 8 < tokens && at < columns;
        xs[b][group] = live ? load_block_of_x<kFormat>(x + group * group_stride + at) : uint4{0, 0, 0, 0};
      }
    }
#pragma unroll
    for (int b = 0; b < kAhead; ++b) multiply_block<kFormat, kGroups>(unit, first + b, xs[b], sums);
  }
}

// What fits without spilling: three blocks on a multiprocessor for the formats whose decoding is short.
template <DType kFormat>
constexpr int blocks_resident(int groups) {
  return groups == 1 && (kFormat == DType::Q4_0 || kFormat == DType::Q4_K) ? 3 : 2;
}

template <DType kFormat, int kGroups>
__global__ void __launch_bounds__(kPackedThreads, blocks_resident<kFormat>(kGroups))
    packed_mma(const __grid_constant__ PackedParams p) {
  using U = Unit<kFormat>;
  __shared__ alignas(16) float partials[kPackedWarps * 8 * kGroups * kTileStride];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_k = warp % p.shape.warps_k, warp_tile = warp / p.shape.warps_k;
  const int tiles = kPackedWarps / p.shape.warps_k;
  const int first_tile = static_cast<int>(blockIdx.x) / p.shape.splits * tiles;
  const int first_token = static_cast<int>(blockIdx.y) * 8 * kGroups;
  const int begin = static_cast<int>(blockIdx.x) % p.shape.splits * p.units_split;
  const int end = min(p.units, begin + p.units_split);
  let_next_kernel_start();

  const int tile = min(first_tile + warp_tile, (p.out.n - 1) / kUnitRows);
  int at = begin + warp_k;
  const uint8_t* from = p.weights + (static_cast<int64_t>(tile) * p.units + at) * U::kSize;
  UnitFragment<kFormat> unit;
  if (at < end) {
    unit.meta.load(from, lane);
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) unit.load_quarter(from, lane, quarter);
  }
  wait_for_previous_kernel();
  const int g = lane / 4, t = lane % 4, tokens = p.out.m - first_token - g;
  const __nv_bfloat16* x = p.x + (first_token + g) * p.x_stride + U::column(t, 0);
  float sums[kGroups][4] = {};
#pragma unroll 1
  while (at < end) {
    const int column = at * kUnitColumns;
    at += p.shape.warps_k;
    from += p.shape.warps_k * U::kSize;
    UnitMeta<kFormat> next;
    if (at < end) next.load(from, lane);
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      multiply_quarter<kFormat, kGroups>(unit, quarter, x + column, 8 * p.x_stride, tokens, p.k - column, sums);
      if (at < end) unit.load_quarter(from, lane, quarter);
    }
    unit.meta = next;
  }

  float* place = partials + (warp_k * tiles + warp_tile) * 8 * kGroups * kTileStride;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) put_fragment(place, group * 8, sums[group]);
  finish_tiles(partials, p.shape.warps_k, tiles, 8 * kGroups, first_tile * kTileRows, first_token, p.shape.splits,
               kPackedThreads, p.out);
}

template <DType kFormat>
cudaError_t launch_packed(const PackedParams& params, const LaunchShape& shape, const CudaStep& step, int groups) {
  switch (groups) {
    case 1: return launch_kernel(packed_mma<kFormat, 1>, shape, step, params);
    case 2: return launch_kernel(packed_mma<kFormat, 2>, shape, step, params);
    default: return launch_kernel(packed_mma<kFormat, 4>, shape, step, params);
  }
}

}  // namespace millrace
