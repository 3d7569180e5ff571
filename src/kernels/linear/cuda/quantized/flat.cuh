// Flat GEMM over quantized weights for 5 to 64 tokens on Hopper. Registers hold the scaled weights, which are the
// first operand of warpgroup products; TMA copies the tokens, the second operand, to shared memory.
//
// 16 warps of a multiprocessor decode at all times: where rows are few, the warpgroups of a block and the blocks of a
// cluster share K. One warp keeps a ring of units of weights full, another a ring of x. x comes from the L2 cache, but
// as late as weights do, so its ring must be as long in time.
#pragma once

#include <algorithm>

#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/scaled_fragments.cuh"
#include "kernels/linear/cuda/quantized/wgmma_registers.cuh"
#include "kernels/linear/cuda/shared_norm.cuh"
#include "kernels/linear/cuda/tensor_map.h"

namespace millrace {

inline constexpr int kFlatWarps = 16;  // that multiply
inline constexpr int kFlatThreads = 32 * (kFlatWarps + 2);
inline constexpr int kFlatRoom = 224 * 1024;
inline constexpr int kFlatMostWays = 4;
inline constexpr int kFlatMostSlots = 32;
inline constexpr int kFlatBox = 64;  // columns of a copy of x: one row of the 128-byte swizzle

struct FlatShape {
  int ways;                 // parts of K in a block; each has 4 / ways warpgroups
  int splits;               // blocks of a cluster that share K
  int unit_slots, x_units;  // lengths of the rings, in columns of units: multiples of ways, so that ways share no slot
  __host__ __device__ int tiles() const { return kFlatWarps / ways; }  // of 16 rows in a block
};

struct FlatParams {
  const uint8_t* weights;
  int units, units_split;  // along K: in total, and per block of a cluster
  FlatShape shape;
  bool chunked;     // x is described as boxes of 64 columns, see describe_chunks(); otherwise as a matrix
  SharedNorm norm;  // one of the halves of a shared norm, or neither
  LinearOutput out;
};

// A chunk of x is what the multiplying warps release at a time.
template <int kTokens>
struct FlatChunk {
  static constexpr int kColumns = kTokens <= 32 ? 256 : 128;
  static constexpr int kPerUnit = kUnitColumns / kColumns;
  static constexpr int kBoxBytes = kTokens * kFlatBox * 2;
  static constexpr int kBytes = kTokens * kColumns * 2;
};

struct FlatRings {
  uint8_t *x, *units;
  uint64_t *x_full, *x_done, *unit_full, *unit_done;
};

// A position in a ring and the parity of its barrier.
struct FlatPlace {
  int slot;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int by, int slots) {
    slot += by;
    if (slot >= slots) {
      slot -= slots;
      parity ^= 1;
    }
  }
};

// The weights of a block: lane i of a warp copies units of the i-th tile of rows.
template <DType kFormat>
class FlatUnitLoader {
 public:
  static constexpr int kSize = Unit<kFormat>::kSize;
  __device__ __forceinline__ FlatUnitLoader(const FlatRings& rings, const FlatParams& p, int begin, int count, int row)
      : rings_(rings), tiles_(p.shape.tiles()), slots_(p.shape.unit_slots), count_(count) {
    const int all = (p.out.n + kTileRows - 1) / kTileRows, tile = min(row / kTileRows + lane(), all - 1);
    from_ = p.weights + (static_cast<int64_t>(tile) * p.units + begin) * kSize;
  }
  __device__ __forceinline__ void first() {
    while (next_ < min(count_, slots_)) copy();
  }
  __device__ __forceinline__ void rest() {
    while (next_ < count_) {
      wait_barrier(rings_.unit_done + at_.slot, at_.parity ^ 1);
      copy();
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ void copy() {
    if (lane() == 0) arrive_expecting(rings_.unit_full + at_.slot, static_cast<uint32_t>(tiles_ * kSize));
    __syncwarp();
    if (lane() < tiles_) {
      copy_bulk(rings_.units + (at_.slot * tiles_ + lane()) * kSize, from_, kSize, rings_.unit_full + at_.slot);
    }
    at_.advance(1, slots_);
    from_ += kSize;
    ++next_;
  }

  const FlatRings& rings_;
  int tiles_, slots_, count_, next_ = 0;
  FlatPlace at_{0};
  const uint8_t* from_;
};

__device__ __forceinline__ void copy_chunks(void* to, const CUtensorMap& map, int chunk, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(0), "r"(chunk), "r"(shared_address(barrier))
      : "memory");
}

// Called by a whole warp. The rate of copies is limited, so one copy takes all boxes of a chunk where it can.
template <int kTokens>
__device__ __forceinline__ void load_x(const FlatRings& rings, const CUtensorMap& x, const FlatParams& p, int begin,
                                       int count) {
  using Chunk = FlatChunk<kTokens>;
  constexpr int kBoxes = Chunk::kColumns / kFlatBox;
  const int lane = threadIdx.x % 32, slots = p.shape.x_units * Chunk::kPerUnit;
  FlatPlace at{0};
  wait_for_previous_kernel();
  for (int i = 0; i < count * Chunk::kPerUnit; ++i) {
    if (i >= slots) wait_barrier(rings.x_done + at.slot, at.parity ^ 1);
    if (lane == 0) arrive_expecting(rings.x_full + at.slot, Chunk::kBytes);
    __syncwarp();
    uint8_t* to = rings.x + at.slot * Chunk::kBytes;
    const int box = begin * (kUnitColumns / kFlatBox) + i * kBoxes;
    if (p.chunked) {
      if (lane == 0) copy_chunks(to, x, box, rings.x_full + at.slot);
    } else if (lane < kBoxes) {
      copy_box(to + lane * Chunk::kBoxBytes, x, (box + lane) * kFlatBox, 0, rings.x_full + at.slot);
    }
    at.advance(1, slots);
  }
}

template <DType kFormat, int kTokens>
__device__ __forceinline__ void multiply_flat(const FlatRings& rings, const FlatShape& shape, int count,
                                              float (&sums)[kTokens / 2]) {
  using Chunk = FlatChunk<kTokens>;
  constexpr int kQuarters = 4 / Chunk::kPerUnit;  // of a chunk
  constexpr int kSize = Unit<kFormat>::kSize;
  // A shuffle tells the compiler that all lanes agree.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = threadIdx.x % 32;
  const int tiles = shape.tiles(), way = warp / tiles, slot_bytes = tiles * kSize;
  const uint8_t* first_unit = rings.units + (warp - way * tiles) * kSize;
  FlatPlace place{way}, x_place{way};  // in units
  const uint8_t* unit = nullptr;
  int unit_slot = 0;
  QuarterBits<kFormat> bits;
  RaisedScales<kFormat> scales;
  uint32_t a[2][4][4];  // one is decoded while the products of the other run
  const auto next_unit = [&] {
    unit_slot = place.slot;
    unit = first_unit + unit_slot * slot_bytes;
    wait_barrier(rings.unit_full + unit_slot, place.parity);
    bits.load(unit, lane, 0);
    scales.load(unit, lane);
    scale_quarter<kFormat>(bits, scales, 0, lane, a[0]);
    bits.load(unit, lane, 1);
    place.advance(shape.ways, shape.unit_slots);
  };
  if (way < count) next_unit();
#pragma unroll 1
  for (int i = way; i < count; i += shape.ways) {
    const int first = __shfl_sync(0xffffffffu, x_place.slot * Chunk::kPerUnit, 0);
    const uint64_t x = matrix_descriptor(rings.x + first * Chunk::kBytes);
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      if (quarter % kQuarters == 0) wait_barrier(rings.x_full + first + quarter / kQuarters, x_place.parity);
      begin_products();
#pragma unroll
      for (int step = 0; step < 4; ++step) {  // descriptors count units of 16 bytes: 16 elements are 2
        RegisterProduct<kTokens>::run(sums, a[quarter % 2][step], x + quarter * (Chunk::kBoxBytes / 16) + 2 * step);
      }
      commit_products();
      if (quarter > 0) {
        wait_products<1>();
        if (quarter % kQuarters == 0 && lane == 0) arrive(rings.x_done + first + quarter / kQuarters - 1);
      }
      if (quarter < 3) {
        scale_quarter<kFormat>(bits, scales, quarter + 1, lane, a[(quarter + 1) % 2]);
        if (quarter < 2) bits.load(unit, lane, quarter + 2);
        if (quarter == 1) arrive(rings.unit_done + unit_slot);  // each lane, for its own reads
      } else if (i + shape.ways < count) {
        next_unit();
      }
    }
    wait_products<0>();  // the compiler serializes products that are in flight across the end of the loop
    if (lane == 0) arrive(rings.x_done + first + Chunk::kPerUnit - 1);
    x_place.advance(shape.ways, shape.x_units);
  }
}

// Adds the sums of a block's ways: [way][tile][token][kTileStride] to those of the first way.
__device__ __forceinline__ void add_ways(float* partials, int ways, int part) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * 4; i < part; i += kFlatWarps * 32 * 4) {
    float4 sum = four_at(partials + i);
#pragma unroll 1
    for (int way = 1; way < ways; ++way) sum = add(sum, four_at(partials + way * part + i));
    *reinterpret_cast<float4*>(partials + i) = sum;
  }
}

// Stores the outputs of the multiplying threads, with either half of a shared norm.
__device__ __forceinline__ void store_flat(const FlatParams& p, const float* partials, int tokens, int row,
                                           const float* scales) {
  const int splits = p.shape.splits, tiles = p.shape.tiles(), step = splits * kFlatWarps * 32;
  const int first = (splits > 1 ? cluster_rank() * kFlatWarps * 32 : 0) + static_cast<int>(threadIdx.x);
  const bool ahead = p.norm.ahead.weights != nullptr;
  const int items = tiles * p.out.m * 2;
  ResidualItem before;
  const auto request = [&](int index) {
    const OutputItem item(index, tiles);
    if (!ahead || index >= items || item.row(row) >= p.out.n) return;
    before.load_weights(p.norm, item.row(row));
    before.load_output(p.out, item.row(row), item.token);
  };
  request(first);  // while the cluster meets
  if (splits > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
#pragma unroll 1
  for (int index = first; index < items; index += step) {
    const OutputItem item(index, tiles);
    const float* at = partials + (item.tile * tokens + item.token) * kTileStride + 4 * item.half;
    float4 low = add_splits(at, splits), high = add_splits(at + 8, splits);
    if (ahead) {
      if (item.row(row) < p.out.n) {
        store_ahead<__nv_bfloat16>(p.out, p.norm, item, item.row(row), before, low, high);
      }
      request(index + step);
    } else {
      if (p.norm.squares != nullptr) {
        low = times(low, scales[item.token]);
        high = times(high, scales[item.token]);
      }
      store_half_tile(p.out, item.token, item.row(row) - 4 * item.half, item.half, low, high);
    }
  }
  if (splits > 1) cluster_meet();  // keeps this block's shared memory alive until the others have read it
}

template <DType kFormat, int kTokens>
__global__ void __launch_bounds__(kFlatThreads, 1)
    packed_flat(const __grid_constant__ CUtensorMap x, const __grid_constant__ FlatParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  using Chunk = FlatChunk<kTokens>;
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[4 * kFlatMostSlots];
  __shared__ float scales[kTokens];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int x_slots = p.shape.x_units * Chunk::kPerUnit;
  const FlatRings rings{aligned,
                        aligned + x_slots * Chunk::kBytes,
                        barriers,
                        barriers + kFlatMostSlots,
                        barriers + 2 * kFlatMostSlots,
                        barriers + 3 * kFlatMostSlots};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, ways = p.shape.ways;
  const int block = static_cast<int>(blockIdx.x) / p.shape.splits;
  const int split = static_cast<int>(blockIdx.x) % p.shape.splits;
  const int row = block * p.shape.tiles() * kUnitRows;
  const int begin = min(p.units, split * p.units_split), count = min(p.units, begin + p.units_split) - begin;
  float* partials = reinterpret_cast<float*>(aligned);
  let_next_kernel_start();
  if (warp == kFlatWarps) {
    if (lane < p.shape.unit_slots) {
      init_barrier(rings.unit_full + lane, 1);
      init_barrier(rings.unit_done + lane, 32 * p.shape.tiles());
    }
    publish_barriers();
    __syncwarp();
    FlatUnitLoader<kFormat> units(rings, p, begin, count, row);
    units.first();  // weights do not depend on the previous kernel
    __syncthreads();
    units.rest();
  } else if (warp > kFlatWarps) {
    if (lane < x_slots) {
      init_barrier(rings.x_full + lane, 1);
      init_barrier(rings.x_done + lane, p.shape.tiles());
    }
    publish_barriers();
    __syncthreads();
    load_x<kTokens>(rings, x, p, begin, count);
  } else {
    __syncthreads();
  }
  if (warp >= kFlatWarps) {
    __syncthreads();
    if (ways > 1) __syncthreads();
    attend_finish(p.shape.splits);
  } else {
    float sums[kTokens / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    if (p.norm.squares != nullptr) {  // while x is in flight
      wait_for_previous_kernel();
      find_scales(p.norm, p.out.m, scales, warp, kFlatWarps);
    }
    multiply_flat<kFormat, kTokens>(rings, p.shape, count, sums);
    wait_for_previous_kernel();
    __syncthreads();  // all products are done: partial sums overwrite the rings
    float* tile = partials + warp * kTokens * kTileStride;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      float fragment[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) fragment[i] = sums[4 * j + i] * kRaisedSumFactor<kFormat>;
      put_fragment(tile, 8 * j, fragment);
    }
    if (ways > 1) {
      __syncthreads();
      add_ways(partials, ways, p.shape.tiles() * kTokens * kTileStride);
    }
    store_flat(p, partials, kTokens, row, scales);
  }
#endif
}

// Bytes of shared memory, besides barriers.
template <DType kFormat, int kTokens>
int flat_bytes(const FlatShape& shape) {
  const int rings = shape.x_units * FlatChunk<kTokens>::kBytes * FlatChunk<kTokens>::kPerUnit +
                    shape.unit_slots * shape.tiles() * Unit<kFormat>::kSize;
  return 1024 + std::max(rings, kFlatWarps * kTokens * kTileStride * 4);
}

// Sets the lengths of the rings for `units` units of K: weights that last as long as they take to arrive, then x, then
// more weights.
template <DType kFormat, int kTokens>
bool fit_flat(FlatShape& shape, int units) {
  constexpr int kLeastWeights = 72 * 1024;
  const int ways = shape.ways, slot = shape.tiles() * Unit<kFormat>::kSize;
  const auto whole = [&](int slots) { return std::max(1, slots / ways) * ways; };
  const auto fits = [&] { return flat_bytes<kFormat, kTokens>(shape) <= kFlatRoom; };
  const int most = whole(std::min(units + ways - 1, kFlatMostSlots));
  shape.unit_slots = std::min(most, whole(std::max(2, (kLeastWeights + slot - 1) / slot) + ways - 1));
  shape.x_units = std::min(most, whole(kFlatMostSlots / FlatChunk<kTokens>::kPerUnit));
  while (!fits() && shape.x_units > ways) shape.x_units -= ways;
  while (!fits() && shape.unit_slots > ways) shape.unit_slots -= ways;
  if (!fits()) return false;
  while (shape.unit_slots < most) {
    shape.unit_slots += ways;
    if (fits()) continue;
    shape.unit_slots -= ways;
    break;
  }
  return true;
}

template <DType kFormat, int kTokens>
cudaError_t launch_flat_tokens(FlatParams params, const CUtensorMap& x, LaunchShape shape, const CudaStep& step) {
  if (!fit_flat<kFormat, kTokens>(params.shape, params.units_split)) return cudaErrorInvalidValue;
  shape.threads = kFlatThreads;
  shape.shared_bytes = static_cast<size_t>(flat_bytes<kFormat, kTokens>(params.shape));
  return launch_kernel(packed_flat<kFormat, kTokens>, shape, step, x, params);
}

template <DType kFormat>
cudaError_t launch_flat(const FlatParams& params, const CUtensorMap& x, const LaunchShape& shape, const CudaStep& step,
                        int tokens) {
  switch (tokens) {
    case 8:
      return launch_flat_tokens<kFormat, 8>(params, x, shape, step);
    case 16:
      return launch_flat_tokens<kFormat, 16>(params, x, shape, step);
    case 32:
      return launch_flat_tokens<kFormat, 32>(params, x, shape, step);
    default:
      return launch_flat_tokens<kFormat, 64>(params, x, shape, step);
  }
}

}  // namespace millrace

// Several files instantiate the formats, so that they compile in parallel. KIND is `extern` in files that only launch.
#define MILLRACE_FLAT_INSTANCE(KIND, F)                                                                      \
  KIND template cudaError_t launch_flat<DType::F>(const FlatParams&, const CUtensorMap&, const LaunchShape&, \
                                                  const CudaStep&, int);
