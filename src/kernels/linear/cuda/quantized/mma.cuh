// Flat GEMM over quantized weights: decodes in registers, multiplies with mma.sync, applies scales per block in f32.
//
// Decoded weights are q + Z, where Z depends on the format. Each block of columns starts its sum at -Z times the sum of
// x over the block, so that the products of x with q remain. The same sums of x serve the minima. x and these sums are
// staged in shared memory once per thread block. MXFP4 needs no sums, and its scales are applied to the weights.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/unit_fragments.cuh"

namespace millrace {

struct PackedShape {
  int warps_k;      // warps of a block that share K; the others take further row tiles
  int splits;       // blocks that share K
  int units_split;  // units of K per block
  int units_chunk;  // units of K whose x is staged at a time; a multiple of warps_k
};

inline constexpr int kPackedWarps = 8;
inline constexpr int kPackedThreads = 32 * kPackedWarps;

struct PackedParams {
  const uint8_t* weights;
  const __nv_bfloat16* x;
  int64_t x_stride;
  int k, units;  // total units along K
  PackedShape shape;
  LinearOutput out;
};

// Shared memory of a chunk: [tokens][x_stride] bf16, then [blocks][parts][groups][4 lanes][4] floats of -Z sum(x), laid
// out as the initial accumulator of a product (tokens 2 t, 2 t + 1, for rows g and again for rows g + 8).
template <DType kFormat, int kGroups>
struct StagedX {
  static constexpr int kParts = Unit<kFormat>::kSixBits ? 2 : 1;  // runs of columns in a block that share a scale
  static constexpr int kBlockSums = Unit<kFormat>::kFp4 ? 0 : kParts * kGroups * 16;
  int stride;  // in elements; 64 bytes of padding put tokens g and g + 1 into different banks
  __nv_bfloat16* x;
  float* sums;

  static __host__ __device__ int bytes(int tokens, int units) {
    return tokens * (units * kUnitColumns + 32) * 2 + units * 8 * kBlockSums * 4;
  }

  __device__ StagedX(uint8_t* shared, int tokens, int units)
      : stride(units * kUnitColumns + 32),
        x(reinterpret_cast<__nv_bfloat16*>(shared)),
        sums(reinterpret_cast<float*>(shared + tokens * stride * 2)) {}

  // A warp stages 256 columns of a token at a time, a lane eight of them; kAtOnce loads share a memory latency.
  // `row_of(token)`: the token's row of x, of k columns. `warp`: this one of the `warps` that share the work.
  template <class RowOf>
  __device__ __forceinline__ void fill(RowOf row_of, int k, int tokens, int first_unit, int units, int warp,
                                       int warps) {
    constexpr int kAtOnce = 4;
    const int column = static_cast<int>(threadIdx.x) % 32 * 8;
#pragma unroll 1
    for (int first = warp; first < tokens * units; first += kAtOnce * warps) {
      uint4 eights[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int job = first + i * warps, token = job / units;
        const int from = (first_unit + job - token * units) * kUnitColumns + column;
        const bool live = token < tokens && from < k;
        eights[i] = load_shared_input_if(row_of(live ? token : 0) + (live ? from : 0), live);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int job = first + i * warps, token = job / units;
        if (token < tokens) place(eights[i], token, job - token * units);
      }
    }
  }

 private:
  // Stores the lane's eight columns of a unit of a token, and sums of x.
  __device__ __forceinline__ void place(const uint4& v, int token, int unit) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // Lane t of a product takes columns 2 t, 2 t + 1 of every eight: store these together.
    auto* words = reinterpret_cast<uint32_t*>(x + token * stride + unit * kUnitColumns + lane / 4 * 32) + lane % 4;
#pragma unroll
    for (int t = 0; t < 4; ++t) words[4 * t] = word(v, t);
    if constexpr (kBlockSums == 0) return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack2<__nv_bfloat16>(word(v, i));
      sum += two.x + two.y;
    }
    constexpr int kLanes = 4 / kParts;  // lanes that share a scale
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (lane % kLanes == 0) {
      const int run = unit * 8 * kParts + lane / kLanes;
      float* to = sums + (run * kGroups + token / 8) * 16 + token % 8 / 2 * 4 + token % 2;
      to[0] = to[2] = -Unit<kFormat>::kZero * sum;
    }
  }
};

// sums += the products of one block of 32 columns with weights of MXFP4 times 2^-32. `x` as below.
template <DType kFormat, int kGroups>
__device__ __forceinline__ void multiply_scaled(const UnitFragment<kFormat>& unit, int block,
                                                const __nv_bfloat16* const (&x)[kGroups], float (&sums)[kGroups][4]) {
  uint32_t low[4], high[4];
  unit.decode_scaled(block, 0, low);
  unit.decode_scaled(block, 1, high);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const uint4 xs = *reinterpret_cast<const uint4*>(x[group] + 32 * block);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      mma<__nv_bfloat16>(sums[group], low[2 * j], high[2 * j], low[2 * j + 1], high[2 * j + 1], word(xs, 2 * j),
                         word(xs, 2 * j + 1));
    }
  }
}

// sums += the products of one block of 32 columns. `x` points to the lane's token of each group, at its first column of
// the unit; `starts` are the lane's sums of x for the unit.
template <DType kFormat, int kGroups>
__device__ __forceinline__ void multiply_block(const UnitFragment<kFormat>& unit, int block,
                                               const __nv_bfloat16* const (&x)[kGroups], const float* starts,
                                               float (&sums)[kGroups][4]) {
  using U = Unit<kFormat>;
  if constexpr (U::kFp4) return multiply_scaled(unit, block, x, sums);
  using T = __nv_bfloat16;
  constexpr int kParts = StagedX<kFormat, kGroups>::kParts;
  uint32_t low[4], high[4], more_low[4], more_high[4];
  unit.decode(block, 0, low, more_low);
  unit.decode(block, 1, high, more_high);
  float2 scale_low[kParts], scale_high[kParts];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    scale_low[part] = unit.scale_minimum(block, part, 0);
    scale_high[part] = unit.scale_minimum(block, part, 1);
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const uint4 xs = *reinterpret_cast<const uint4*>(x[group] + 32 * block);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float4 start = *reinterpret_cast<const float4*>(starts + ((block * kParts + part) * kGroups + group) * 16);
      float products[4] = {start.x, start.y, start.z, start.w};
#pragma unroll
      for (int j = part; j < (kParts == 2 ? part + 1 : 2); ++j) {
        const uint32_t b0 = word(xs, 2 * j), b1 = word(xs, 2 * j + 1);
        mma<T>(products, low[2 * j], high[2 * j], low[2 * j + 1], high[2 * j + 1], b0, b1);
        if constexpr (U::kWide) {
          mma<T>(products, more_low[2 * j], more_high[2 * j], more_low[2 * j + 1], more_high[2 * j + 1], b0, b1);
        }
      }
      const float start_of[4] = {start.x, start.y, start.z, start.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 s = i < 2 ? scale_low[part] : scale_high[part];
        sums[group][i] = fmaf(s.x, products[i], sums[group][i]);
        if constexpr (U::kMinimum) sums[group][i] = fmaf(s.y * (-1.f / U::kZero), start_of[i], sums[group][i]);
      }
    }
  }
}

// Blocks per multiprocessor that fit without register spills.
__host__ __device__ constexpr int packed_blocks_resident(DType format, int groups) {
  if (format == DType::MXFP4) return groups <= 2 ? 3 : 2;
  return groups == 1 && (format == DType::Q4_0 || format == DType::Q4_K) ? 3 : 2;
}

// Stores a warp's sums of a tile for the addition of all warps' parts.
template <DType kFormat, int kGroups>
__device__ __forceinline__ void put_sums(float* tile, float (&sums)[kGroups][4]) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (float& sum : sums[group]) sum *= Unit<kFormat>::kSumFactor;
    put_fragment(tile, group * 8, sums[group]);
  }
}

template <DType kFormat, int kGroups>
__global__ void __launch_bounds__(kPackedThreads, packed_blocks_resident(kFormat, kGroups))
    packed_mma(const __grid_constant__ PackedParams p) {
  using U = Unit<kFormat>;
  extern __shared__ __align__(16) uint8_t shared[];
  const PackedShape& shape = p.shape;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_k = warp % shape.warps_k, warp_tile = warp / shape.warps_k, tiles = kPackedWarps / shape.warps_k;
  const int first_tile = static_cast<int>(blockIdx.x) / shape.splits * tiles;
  const int first_token = static_cast<int>(blockIdx.y) * 8 * kGroups, live = min(8 * kGroups, p.out.m - first_token);
  const int begin = static_cast<int>(blockIdx.x) % shape.splits * shape.units_split;
  const int end = min(p.units, begin + shape.units_split);
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

  StagedX<kFormat, kGroups> staged(shared, live, shape.units_chunk);
  float sums[kGroups][4] = {};
  for (int chunk = begin; chunk < end; chunk += shape.units_chunk) {
    const int chunk_end = min(end, chunk + shape.units_chunk);
    if (chunk > begin) __syncthreads();
    const auto row_of = [&](int token) { return p.x + (first_token + token) * p.x_stride; };
    staged.fill(row_of, p.k, live, chunk, chunk_end - chunk, warp, kPackedWarps);
    __syncthreads();
    const __nv_bfloat16* x[kGroups];  // missing tokens repeat the last one; their sums are not stored
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      x[group] =
          staged.x + min(group * 8 + lane / 4, live - 1) * staged.stride + (at - chunk) * kUnitColumns + 8 * (lane % 4);
    }
    const float* starts = staged.sums + (at - chunk) * 8 * staged.kBlockSums + lane % 4 * 4;
#pragma unroll 1
    while (at < chunk_end) {
      at += shape.warps_k;
      from += shape.warps_k * U::kSize;
      UnitMeta<kFormat> next;
      if (at < end) next.load(from, lane);
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        multiply_block<kFormat, kGroups>(unit, 2 * quarter, x, starts, sums);
        multiply_block<kFormat, kGroups>(unit, 2 * quarter + 1, x, starts, sums);
        if (at < end) unit.load_quarter(from, lane, quarter);
      }
      unit.meta = next;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) x[group] += shape.warps_k * kUnitColumns;
      starts += shape.warps_k * 8 * staged.kBlockSums;
    }
  }

  __syncthreads();  // partial sums overwrite x
  float* partials = reinterpret_cast<float*>(shared);
  put_sums<kFormat, kGroups>(partials + (warp_k * tiles + warp_tile) * 8 * kGroups * kTileStride, sums);
  finish_tiles(partials, shape.warps_k, tiles, 8 * kGroups, first_tile * kTileRows, first_token, shape.splits,
               kPackedThreads, p.out);
}

template <DType kFormat, int kGroups>
cudaError_t launch_packed_groups(const PackedParams& params, LaunchShape shape, const CudaStep& step) {
  const int live = min(8 * kGroups, params.out.m);
  const int staged = StagedX<kFormat, kGroups>::bytes(live, params.shape.units_chunk);
  const int partials = kPackedWarps * 8 * kGroups * kTileStride * 4;
  shape.shared_bytes = static_cast<size_t>(max(staged, partials));
  return launch_kernel(packed_mma<kFormat, kGroups>, shape, step, params);
}

template <DType kFormat>
cudaError_t launch_packed(const PackedParams& params, const LaunchShape& shape, const CudaStep& step, int groups) {
  switch (groups) {
    case 1:
      return launch_packed_groups<kFormat, 1>(params, shape, step);
    case 2:
      return launch_packed_groups<kFormat, 2>(params, shape, step);
    default:
      return launch_packed_groups<kFormat, 4>(params, shape, step);
  }
}

}  // namespace millrace

// KIND is `extern` in files that only launch.
#define MILLRACE_MMA_INSTANCE(KIND, F) \
  KIND template cudaError_t launch_packed<DType::F>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
