// Quantized weights times one to eight tokens on Hopper: a stream of bulk copies that the tensor cores keep up with.
//
// Blocks stay and take tiles of 16 rows in turn. A loader warp copies the units of a tile, eight at a time, into a ring
// that runs ahead over the borders of tiles, and starts before the kernel in front has ended. Eight warps take a unit
// each and leave the sums of a tile to one more, which adds them up and stores.
//
// One token fills one of the eight columns of a tensor-core product. It is spread over all of them: each of eight runs
// of columns that share a scale has the x of its own in its own column, and zeros in the others. Scales are then
// applied once per unit, and not once per run.
#pragma once

#include "kernels/linear/cuda/barrier.cuh"
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/half_x.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/run_scales.cuh"

namespace millrace {

inline constexpr int kStreamWarps = 8;  // that multiply
inline constexpr int kStreamThreads = 32 * (kStreamWarps + 2);
inline constexpr int kStreamMaxSlots = 12;
inline constexpr int kZeroBytes = 128;

struct PackedStreamParams {
  const uint8_t* weights;
  const __nv_bfloat16* x;
  int64_t x_stride;
  int k, units;  // units along K
  int slots;     // of the ring
  LinearOutput out;
};

template <DType kFormat>
__host__ __device__ constexpr int stream_slot_bytes() {
  return kStreamWarps * Unit<kFormat>::kSize;
}

__host__ __device__ constexpr int stream_partial_floats(int tokens) { return kStreamWarps * tokens * kTileStride; }

// Shared memory beside the ring: zeros, sums of two tiles, x.
template <DType kFormat, int kTokens>
__host__ __device__ int stream_fixed_bytes(int m, int units) {
  return kZeroBytes + 2 * stream_partial_floats(kTokens) * 4 + HalfX<kFormat, kTokens>::bytes(m, units);
}

// A place in a ring, with the parity of its barriers.
struct RingPlace {
  int at = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int count) {
    if (++at == count) {
      at = 0;
      parity ^= 1;
    }
  }
};

struct StreamBarriers {
  uint64_t full[kStreamMaxSlots], empty[kStreamMaxSlots];  // of the ring
  uint64_t summed[2], taken[2];                            // of the sums of a tile
};

__device__ __forceinline__ void meet_multipliers() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

template <DType kFormat>
__device__ __forceinline__ void stream_weights(const PackedStreamParams& p, uint8_t* ring, StreamBarriers& barriers,
                                               int tiles) {
  constexpr int kSize = Unit<kFormat>::kSize;
  RingPlace place;
  int used = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const uint8_t* from = p.weights + static_cast<int64_t>(tile) * p.units * kSize;
    for (int unit = 0; unit < p.units; unit += kStreamWarps, ++used) {
      const auto bytes = static_cast<uint32_t>(min(kStreamWarps, p.units - unit) * kSize);
      if (used >= p.slots) wait_barrier(barriers.empty + place.at, place.parity ^ 1);
      arrive_expecting(barriers.full + place.at, bytes);
      copy_bulk(ring + place.at * stream_slot_bytes<kFormat>(), from + static_cast<int64_t>(unit) * kSize, bytes,
                barriers.full + place.at);
      place.advance(p.slots);
    }
  }
}

// One token: sums of rows g and g + 8, over the runs 2 t and 2 t + 1 of every eight.
template <DType kFormat>
__device__ __forceinline__ void multiply_unit(const UnitFragment<kFormat>& unit, const RunScales<kFormat>& scales,
                                              const uint8_t* x, const uint8_t* zeros, const float* starts,
                                              const float* plain, int lane, float (&sums)[2]) {
  using U = Unit<kFormat>;
  constexpr int kEights = RunScales<kFormat>::kEights;
  float products[kEights][2][4];
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight) {
    const float2 start = *reinterpret_cast<const float2*>(starts + 8 * eight + lane % 4 * 2);
    products[eight][0][0] = products[eight][0][2] = start.x;
    products[eight][0][1] = products[eight][0][3] = start.y;
#pragma unroll
    for (float& sum : products[eight][1]) sum = 0;
  }
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    uint32_t low[4], high[4];
    unit.decode_half(block, 0, low);
    unit.decode_half(block, 1, high);
    const uint8_t* none = zeros + (block + 1) % 2 * 64;  // on the banks where x is not
    if constexpr (U::kRun == 32) {
      const uint4 xs = *reinterpret_cast<const uint4*>(lane / 4 == block ? x + block * 64 : none);
      mma<__half>(products[0][0], low[0], high[0], low[1], high[1], xs.x, xs.y);
      mma<__half>(products[0][1], low[2], high[2], low[3], high[3], xs.z, xs.w);
    } else {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int run = 2 * block + part;
        const uint2 xs = *reinterpret_cast<const uint2*>(lane / 4 == run % 8 ? x + block * 64 + part * 8 : none);
        mma<__half>(products[run / 8][part], low[2 * part], high[2 * part], low[2 * part + 1], high[2 * part + 1], xs.x,
                    xs.y);
      }
    }
  }
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float product = products[eight][0][i] + products[eight][1][i];
      sums[i / 2] = fmaf(scales.scale[eight][i / 2][i % 2], product, sums[i / 2]);
    }
  }
  if constexpr (U::kMinimum) {
    const float2 sum = *reinterpret_cast<const float2*>(plain + lane % 4 * 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums[half] = fmaf(scales.minimum[half][0], sum.x, fmaf(scales.minimum[half][1], sum.y, sums[half]));
    }
  }
}

// Up to eight tokens, one in each column.
template <DType kFormat>
__device__ __forceinline__ void multiply_unit(const UnitFragment<kFormat>& unit, const RunScales<kFormat>& scales,
                                              const uint8_t* x, const uint8_t*, const float* starts, const float* plain,
                                              int lane, float (&sums)[4]) {
  using U = Unit<kFormat>;
  constexpr int kParts = 32 / U::kRun;
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    uint32_t low[4], high[4];
    unit.decode_half(block, 0, low);
    unit.decode_half(block, 1, high);
    const uint4 xs = *reinterpret_cast<const uint4*>(x + block * 64);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int run = kParts * block + part;
      const float2 start = *reinterpret_cast<const float2*>(starts + run * 8 + lane % 4 * 2);
      float products[4] = {start.x, start.y, start.x, start.y};
#pragma unroll
      for (int j = part; j < (kParts == 2 ? part + 1 : 2); ++j) {
        mma<__half>(products, low[2 * j], high[2 * j], low[2 * j + 1], high[2 * j + 1], word(xs, 2 * j),
                    word(xs, 2 * j + 1));
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = scales.scale_of(run, half, lane);
        sums[2 * half] = fmaf(scale, products[2 * half], sums[2 * half]);
        sums[2 * half + 1] = fmaf(scale, products[2 * half + 1], sums[2 * half + 1]);
        if constexpr (U::kMinimum) {
          const float2 sum = *reinterpret_cast<const float2*>(plain + run * 8 + lane % 4 * 2);
          const float minimum = scales.minimum_of(run, half, lane);
          sums[2 * half] = fmaf(minimum, sum.x, sums[2 * half]);
          sums[2 * half + 1] = fmaf(minimum, sum.y, sums[2 * half + 1]);
        }
      }
    }
  }
}

// A warp's sums of a tile, where finish_items finds them.
template <int kTokens>
__device__ __forceinline__ void put_sums(float* place, const float* factors, int m, int lane,
                                         float (&sums)[kTokens == 1 ? 2 : 4]) {
  const int g = lane / 4, t = lane % 4;
  if constexpr (kTokens == 1) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
      sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
      if (t == 0) place[g + 8 * half] = sums[half] * factors[0];
    }
  } else {
    const float first = factors[min(2 * t, m - 1)], second = factors[min(2 * t + 1, m - 1)];
    const float scaled[4] = {sums[0] * first, sums[1] * second, sums[2] * first, sums[3] * second};
    put_fragment(place, 0, scaled);
  }
}

template <DType kFormat, int kTokens>
__device__ __forceinline__ void multiply_tiles(const PackedStreamParams& p, const uint8_t* ring,
                                               StreamBarriers& barriers, const HalfX<kFormat, kTokens>& staged,
                                               const uint8_t* zeros, float* partials, int tiles) {
  using U = Unit<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Tokens that are not there repeat the last one: nobody looks at their sums.
  const uint8_t* x = staged.x + (kTokens == 1 ? 0 : min(lane / 4, p.out.m - 1) * staged.stride) + lane % 4 * 16;
  RingPlace place;
  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x), ++turn) {
    float sums[kTokens == 1 ? 2 : 4] = {};
#pragma unroll 1
    for (int first = 0; first < p.units; first += kStreamWarps) {
      const int index = first + warp;
      const uint8_t* from = ring + place.at * stream_slot_bytes<kFormat>() + warp * U::kSize;
      wait_barrier(barriers.full + place.at, place.parity);
      UnitFragment<kFormat> unit;
      RunScales<kFormat> scales;
      if (index < p.units) {
        unit.load_bits(from, lane);
        scales.load(from, lane);
      }
      __syncwarp();
      if (lane == 0) arrive(barriers.empty + place.at);
      place.advance(p.slots);
      if (index < p.units) {
        multiply_unit<kFormat>(unit, scales, x + index * staged.kUnitBytes, zeros + lane % 4 * 16,
                               staged.starts + index * U::kRuns * kTokens, staged.plain + index * U::kRuns * kTokens,
                               lane, sums);
      }
    }
    const int buffer = turn % 2;
    if (turn >= 2) wait_barrier(barriers.taken + buffer, (turn / 2 - 1) % 2);
    put_sums<kTokens>(partials + buffer * stream_partial_floats(kTokens) + warp * kTokens * kTileStride, staged.factors,
                      p.out.m, lane, sums);
    __syncwarp();
    if (lane == 0) arrive(barriers.summed + buffer);
  }
}

template <int kTokens>
__device__ __forceinline__ void store_tiles(const PackedStreamParams& p, StreamBarriers& barriers,
                                            const float* partials, int tiles) {
  const int lane = threadIdx.x % 32;
  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x), ++turn) {
    const int buffer = turn % 2;
    wait_barrier(barriers.summed + buffer, turn / 2 % 2);
    finish_items(partials + buffer * stream_partial_floats(kTokens), kStreamWarps, 1, kTokens, tile * kTileRows, 0, 1,
                 lane, 32, p.out);
    __syncwarp();
    if (lane == 0) arrive(barriers.taken + buffer);
  }
}

template <DType kFormat, int kTokens>
__global__ void __launch_bounds__(kStreamThreads, 2) packed_stream(const __grid_constant__ PackedStreamParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ StreamBarriers barriers;
  const int tiles = (p.out.n + kTileRows - 1) / kTileRows, warp = threadIdx.x / 32;
  uint8_t* zeros = ring + p.slots * stream_slot_bytes<kFormat>();
  float* partials = reinterpret_cast<float*>(zeros + kZeroBytes);
  const HalfX<kFormat, kTokens> staged(reinterpret_cast<uint8_t*>(partials + 2 * stream_partial_floats(kTokens)),
                                       p.out.m, p.units);
  let_next_kernel_start();
  if (threadIdx.x == kStreamWarps * 32) {
    for (int i = 0; i < p.slots; ++i) {
      init_barrier(barriers.full + i, 1);
      init_barrier(barriers.empty + i, kStreamWarps);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(barriers.summed + i, kStreamWarps);
      init_barrier(barriers.taken + i, 1);
    }
    publish_barriers();
  }
  if (threadIdx.x < kZeroBytes / 4) reinterpret_cast<uint32_t*>(zeros)[threadIdx.x] = 0;
  if (threadIdx.x < kTokens) staged.peaks[threadIdx.x] = 0;
  __syncthreads();
  if (warp == kStreamWarps) {
    if (threadIdx.x % 32 == 0) stream_weights<kFormat>(p, ring, barriers, tiles);
    wait_for_previous_kernel();
  } else if (warp > kStreamWarps) {
    wait_for_previous_kernel();
    store_tiles<kTokens>(p, barriers, partials, tiles);
  } else {
    wait_for_previous_kernel();
    staged.fetch(p.x, p.x_stride, p.k, p.out.m, p.units, warp, kStreamWarps);
    meet_multipliers();
    staged.convert(p.out.m, p.units, warp, kStreamWarps);
    meet_multipliers();
    multiply_tiles<kFormat, kTokens>(p, ring, barriers, staged, zeros, partials, tiles);
  }
#endif
}

// `room`: bytes of shared memory that a block may take. Refused when not even two slots fit.
template <DType kFormat, int kTokens>
cudaError_t launch_stream_tokens(PackedStreamParams params, LaunchShape shape, const CudaStep& step, int room) {
  const int fixed = stream_fixed_bytes<kFormat, kTokens>(params.out.m, params.units);
  params.slots = min(kStreamMaxSlots, (room - fixed) / stream_slot_bytes<kFormat>());
  if (params.slots < 2) return cudaErrorInvalidValue;
  shape.shared_bytes = static_cast<size_t>(fixed + params.slots * stream_slot_bytes<kFormat>());
  return launch_kernel(packed_stream<kFormat, kTokens>, shape, step, params);
}

template <DType kFormat>
cudaError_t launch_stream(const PackedStreamParams& params, const LaunchShape& shape, const CudaStep& step, int room) {
  return params.out.m == 1 ? launch_stream_tokens<kFormat, 1>(params, shape, step, room)
                           : launch_stream_tokens<kFormat, 8>(params, shape, step, room);
}

}  // namespace millrace
