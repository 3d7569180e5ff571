// Full GEMM over quantized weights on Hopper, for more tokens than flat.cuh takes. Weights are decoded and scaled in
// registers, which are the first operand of warpgroup products. Tokens are the second operand, copied to shared memory
// by TMA.
//
// Decoding a weight costs about two instructions, independent of the number of tokens, and overlaps with the products
// of the previous weights. A loader warp keeps two rings full, one of units of weights and one of chunks of x. The
// blocks of a cluster share K.
#pragma once

#include <algorithm>

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/run_scales.cuh"
#include "kernels/linear/cuda/quantized/wgmma_registers.cuh"
#include "kernels/linear/cuda/tensor_map.h"

namespace millrace {

inline constexpr int kChunk = 64;  // columns of x at a time: one row of the 128-byte swizzle, a quarter of a unit
inline constexpr int kMaxUnitSlots = 8;
inline constexpr int kMaxChunkSlots = 8;

struct PackedWgmmaParams {
  const uint8_t* weights;
  int units, units_split;  // along K: in total, and per block of a cluster
  int unit_slots, splits, token_blocks;
  LinearOutput out;
};

template <DType kFormat, int kTokens>
struct PackedTile {
  static constexpr int kGroups = 2;  // warpgroups that multiply
  static constexpr int kWarps = 4 * kGroups;
  static constexpr int kRows = kTileRows * kWarps;
  // The sums need more registers than an even share: a whole warpgroup loads and gives its registers to the others.
  static constexpr int kThreads = 32 * (kWarps + 4);
  static constexpr int kSlotBytes = kWarps * Unit<kFormat>::kSize;
  static constexpr int kChunkBytes = kTokens * kChunk * 2;
  static constexpr int kChunkSlots = kTokens == 256 ? 4 : kMaxChunkSlots;
  static constexpr int kPartialBytes = kWarps * kTokens * kTileStride * 4;
};

struct PackedRings {
  uint8_t *chunks, *units;
  uint64_t *chunk_full, *chunk_empty, *unit_full, *unit_empty;
};

// Called by a whole warp: lane i copies the unit of the i-th tile of rows.
template <DType kFormat, int kTokens>
__device__ __forceinline__ void load_rings(const PackedRings& rings, const CUtensorMap& x, const PackedWgmmaParams& p,
                                           int begin, int end, int row, int token) {
  using Tile = PackedTile<kFormat, kTokens>;
  constexpr int kSize = Unit<kFormat>::kSize;
  const int lane = threadIdx.x % 32, tiles = (p.out.n + kTileRows - 1) / kTileRows;
  const uint8_t* from =
      p.weights + (static_cast<int64_t>(min(row / kTileRows + lane, tiles - 1)) * p.units + begin) * kSize;
  const auto copy_units = [&](int index, int slot) {
    if (lane == 0) arrive_expecting(rings.unit_full + slot, Tile::kSlotBytes);
    __syncwarp();
    if (lane < Tile::kWarps) {
      copy_bulk(rings.units + slot * Tile::kSlotBytes + lane * kSize, from + static_cast<int64_t>(index) * kSize, kSize,
                rings.unit_full + slot);
    }
  };
  const int count = end - begin, ahead = min(count, p.unit_slots);
  for (int i = 0; i < ahead; ++i) copy_units(i, i);  // weights do not depend on the previous kernel
  wait_for_previous_kernel();
  int next = ahead, unit_slot = 0, chunk_slot = 0;
  uint32_t unit_parity = 0, chunk_parity = 1;
  for (int chunk = 0; chunk < 4 * count; ++chunk) {
    wait_barrier(rings.chunk_empty + chunk_slot, chunk_parity);  // the first round finds the ring empty
    if (lane == 0) {
      arrive_expecting(rings.chunk_full + chunk_slot, Tile::kChunkBytes);
      copy_box(rings.chunks + chunk_slot * Tile::kChunkBytes, x, (4 * begin + chunk) * kChunk, token,
               rings.chunk_full + chunk_slot);
    }
    if (++chunk_slot == Tile::kChunkSlots) {
      chunk_slot = 0;
      chunk_parity ^= 1;
    }
    // Refills units only when the multiplying warps must have released them, so that x never waits here for long.
    if (chunk % 4 == 3 && next < count && chunk / 4 >= Tile::kChunkSlots / 4) {
      wait_barrier(rings.unit_empty + unit_slot, unit_parity);
      copy_units(next++, unit_slot);
      if (++unit_slot == p.unit_slots) {
        unit_slot = 0;
        unit_parity ^= 1;
      }
    }
  }
}

// Scales and minima of the lane's runs (RunScales) as pairs of bf16.
template <DType kFormat>
struct PairScales {
  using U = Unit<kFormat>;
  uint32_t scale[RunScales<kFormat>::kEights][2][2], minimum[2][2];

  static __device__ __forceinline__ uint32_t twice(float v) {
    const __nv_bfloat162 two = __float2bfloat162_rn(v);
    return *reinterpret_cast<const uint32_t*>(&two);
  }
  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    RunScales<kFormat> scales;
    scales.load(unit, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int eight = 0; eight < RunScales<kFormat>::kEights; ++eight) {
        scale[eight][i / 2][i % 2] = twice(scales.scale[eight][i / 2][i % 2]);
      }
      if constexpr (U::kMinimum) minimum[i / 2][i % 2] = twice(scales.minimum[i / 2][i % 2]);
    }
  }
};

__device__ __forceinline__ __nv_bfloat162 as_pair(uint32_t v) { return *reinterpret_cast<const __nv_bfloat162*>(&v); }

// Weights of 64 columns from 64 quarter on, as the fragments of four products.
template <DType kFormat>
__device__ __forceinline__ void decode_quarter(const UnitFragment<kFormat>& unit, const PairScales<kFormat>& scales,
                                               int quarter, int lane, uint32_t (&a)[4][4]) {
  using U = Unit<kFormat>;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int block = 2 * quarter + i;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t pairs[4], more[4], scale = 0, minimum = 0;
      unit.decode(block, half, pairs, more);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        if (p == 0 || (U::kRun == 16 && p == 2)) {  // once per run: the compiler does not merge shuffles
          const int run = U::kRun == 32 ? block : 2 * block + p / 2, source = lane / 4 * 4 + run % 8 / 2;
          scale = __shfl_sync(0xffffffffu, scales.scale[run / 8][half][run % 2], source);
          if constexpr (U::kMinimum) minimum = __shfl_sync(0xffffffffu, scales.minimum[half][run % 2], source);
        }
        __nv_bfloat162 v = as_pair(pairs[p]);
        if constexpr (!U::kFp4) v = __hadd2(v, as_pair(U::kMinusZero));  // exact
        if constexpr (U::kWide) v = __hadd2(v, as_pair(more[p]));        // exact
        v = U::kMinimum ? __hfma2(v, as_pair(scale), as_pair(minimum)) : __hmul2(v, as_pair(scale));
        a[2 * i + p / 2][p % 2 * 2 + half] = *reinterpret_cast<const uint32_t*>(&v);
      }
    }
  }
}

template <DType kFormat, int kTokens>
__device__ __forceinline__ void multiply_units(const PackedRings& rings, int unit_slots, int count,
                                               float (&sums)[kTokens / 2]) {
  using Tile = PackedTile<kFormat, kTokens>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int kUnitsOfX = Tile::kChunkSlots / 4;  // units whose chunks the ring holds
  int unit_slot = 0;
  uint32_t unit_parity = 0;
  UnitFragment<kFormat> unit;
  PairScales<kFormat> scales;
  uint32_t a[2][4][4];  // one is decoded while the products of the other run
  const auto next_unit = [&] {
    const uint8_t* at = rings.units + unit_slot * Tile::kSlotBytes + warp * Unit<kFormat>::kSize;
    wait_barrier(rings.unit_full + unit_slot, unit_parity);
    unit.load_bits(at, lane);
    scales.load(at, lane);
    arrive(rings.unit_empty + unit_slot);  // each lane arrives for its own reads: racecheck recognizes no other order
    if (++unit_slot == unit_slots) {
      unit_slot = 0;
      unit_parity ^= 1;
    }
    decode_quarter<kFormat>(unit, scales, 0, lane, a[0]);
  };
  if (count > 0) next_unit();
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    // A shuffle of the index tells the compiler that all lanes agree.
    const int first_slot = kUnitsOfX == 1 ? 0 : __shfl_sync(0xffffffffu, i % kUnitsOfX * 4, 0);
    const uint32_t chunk_parity = i / kUnitsOfX % 2;
    const uint64_t x = matrix_descriptor(rings.chunks + first_slot * Tile::kChunkBytes);
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      wait_barrier(rings.chunk_full + first_slot + quarter, chunk_parity);
      begin_products();
#pragma unroll
      for (int step = 0; step < 4; ++step) {  // descriptors count units of 16 bytes: 16 elements are 2
        RegisterProduct<kTokens>::run(sums, a[quarter % 2][step], x + quarter * (Tile::kChunkBytes / 16) + 2 * step);
      }
      commit_products();
      if (quarter > 0) {
        wait_products<1>();
        if (lane == 0) arrive(rings.chunk_empty + first_slot + quarter - 1);
      }
      if (quarter < 3) {
        decode_quarter<kFormat>(unit, scales, quarter + 1, lane, a[(quarter + 1) % 2]);
      } else if (i + 1 < count) {
        next_unit();
      }
    }
    wait_products<0>();  // the compiler serializes products that are in flight across the end of the loop
    if (lane == 0) arrive(rings.chunk_empty + first_slot + 3);
  }
}

template <DType kFormat, int kTokens>
__global__ void __launch_bounds__(PackedTile<kFormat, kTokens>::kThreads, 1)
    packed_wgmma(const __grid_constant__ CUtensorMap x, const __grid_constant__ PackedWgmmaParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  using Tile = PackedTile<kFormat, kTokens>;
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * (kMaxUnitSlots + kMaxChunkSlots)];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const PackedRings rings{aligned,
                          aligned + Tile::kChunkSlots * Tile::kChunkBytes,
                          barriers,
                          barriers + kMaxChunkSlots,
                          barriers + 2 * kMaxChunkSlots,
                          barriers + 2 * kMaxChunkSlots + kMaxUnitSlots};
  const int warp = threadIdx.x / 32;
  const int block = static_cast<int>(blockIdx.x) / p.splits, split = static_cast<int>(blockIdx.x) % p.splits;
  const int row = block / p.token_blocks * Tile::kRows, token = block % p.token_blocks * kTokens;
  const int begin = min(p.units, split * p.units_split), end = min(p.units, begin + p.units_split);
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kChunkSlots; ++i) {
      init_barrier(rings.chunk_full + i, 1);
      init_barrier(rings.chunk_empty + i, Tile::kWarps);
    }
    for (int i = 0; i < p.unit_slots; ++i) {
      init_barrier(rings.unit_full + i, 1);
      init_barrier(rings.unit_empty + i, 32 * Tile::kWarps);
    }
    publish_barriers();
  }
  __syncthreads();

  float* partials = reinterpret_cast<float*>(aligned);
  if (warp >= Tile::kWarps) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == Tile::kWarps) load_rings<kFormat, kTokens>(rings, x, p, begin, end, row, token);
    __syncthreads();
    attend_finish(p.splits);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float sums[kTokens / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    multiply_units<kFormat, kTokens>(rings, p.unit_slots, end - begin, sums);
    wait_for_previous_kernel();
    __syncthreads();  // all products are done: partial sums overwrite the rings
    float* tile = partials + warp * kTokens * kTileStride;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      float fragment[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) fragment[i] = sums[4 * j + i] * Unit<kFormat>::kSumFactor;
      put_fragment(tile, 8 * j, fragment);
    }
    finish_tiles(partials, 1, Tile::kWarps, kTokens, row, token, p.splits, 32 * Tile::kWarps, p.out);
  }
#endif
}

template <DType kFormat, int kTokens>
cudaError_t launch_wgmma_tokens(PackedWgmmaParams params, const CUtensorMap& x, LaunchShape shape,
                                const CudaStep& step) {
  using Tile = PackedTile<kFormat, kTokens>;
  constexpr int kChunkRing = Tile::kChunkSlots * Tile::kChunkBytes, kRoom = 224 * 1024;
  params.unit_slots = std::clamp((kRoom - 1024 - kChunkRing) / Tile::kSlotBytes, 2, kMaxUnitSlots);
  shape.threads = Tile::kThreads;
  shape.shared_bytes =
      1024 + static_cast<size_t>(std::max(kChunkRing + params.unit_slots * Tile::kSlotBytes, Tile::kPartialBytes));
  return launch_kernel(packed_wgmma<kFormat, kTokens>, shape, step, x, params);
}

template <DType kFormat>
cudaError_t launch_wgmma(const PackedWgmmaParams& params, const CUtensorMap& x, const LaunchShape& shape,
                         const CudaStep& step, int tokens) {
  return tokens == 128 ? launch_wgmma_tokens<kFormat, 128>(params, x, shape, step)
                       : launch_wgmma_tokens<kFormat, 256>(params, x, shape, step);
}

}  // namespace millrace

// KIND is `extern` in files that only launch.
#define MILLRACE_WGMMA_INSTANCE(KIND, F)                                                                             \
  KIND template cudaError_t launch_wgmma<DType::F>(const PackedWgmmaParams&, const CUtensorMap&, const LaunchShape&, \
                                                   const CudaStep&, int);
