// Quantized weights on Hopper for one to four tokens: a product for each (token, choice) pair, as in linear/cuda/
// quantized/gemv.cuh. A block has one multiprocessor for itself. Its 16 warps share the units of its tiles; each
// streams its units through a ring of its own.
//
// Without `sum` a block has some tiles of one pair; in a gated layer tiles of gate and of up alternate. With `sum` a
// block has the same tiles of all pairs of a row and adds them up, so that no second kernel does.
#pragma once

#include "kernels/grouped_linear/cuda/tile_copies.cuh"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/gemv_outputs.cuh"

namespace millrace {

inline constexpr int kPairsThreads = 32 * kRingWarps;
inline constexpr int kPairsRings = 112 * 1024;  // bytes; no second block fits beside it
inline constexpr int kPairsMostPerRow = 32;

struct PackedPairsParams {
  GroupedParams p;
  int units;          // along K
  TileShares shares;  // tiles of a matrix that the blocks of a pair, or of a row, have
};

// The units of a block's tiles: warp w takes those with index w, w + 16, ... `first_unit(tile)` is the address of a
// tile's first unit, or null: such a tile is not read, and nobody uses its sums.
template <DType kFormat, class FirstUnit>
class TileStream {
 public:
  static constexpr int kSize = Unit<kFormat>::kSize, kSlots = kPairsRings / (kRingWarps * kSize);
  static_assert(kSlots >= 1);

  __device__ __forceinline__ TileStream(uint8_t* rings, int tiles, int units, const void* any, FirstUnit first_unit)
      : first_unit_(first_unit),
        any_(static_cast<const uint8_t*>(any)),
        ring_(rings + warp_index() * kSlots * kSize),
        next_(warp_index(), units),
        tiles_(tiles),
        units_(units) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) fetch();
  }

  // The oldest unit in flight. Call refill() after all lanes have read it.
  __device__ __forceinline__ const uint8_t* wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
    __syncwarp();
    return ring_ + at_ * kSize;
  }
  __device__ __forceinline__ void refill() {
    __syncwarp();
    fetch();
  }

 private:
  // Commits empty groups at the end, because wait() counts groups.
  __device__ __forceinline__ void fetch() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint8_t* first = next_.tile < tiles_ ? first_unit_(next_.tile) : nullptr;
    const bool live = first != nullptr;
    const uint8_t* from = live ? first + next_.unit * kSize : any_;
#pragma unroll
    for (int i = lane * 16; i < kSize; i += 512) copy_if(ring_ + at_ * kSize + i, from + i, live);
    asm volatile("cp.async.commit_group;" ::: "memory");
    next_.advance(units_);
    at_ = at_ + 1 == kSlots ? 0 : at_ + 1;
  }

  FirstUnit first_unit_;
  const uint8_t* any_;  // a unit that may be read
  uint8_t* ring_;
  UnitPlace<> next_;
  int tiles_, units_;
  int at_ = 0;  // slot to fill or read next
};

// Stages rows first_row .. first_row + rows - 1 of x, unit after unit.
template <DType kFormat>
__device__ __forceinline__ void stage_rows(const PackedPairsParams& f, int first_row, int rows,
                                           const GemvX<kFormat>& staged) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 2
  for (int at = warp_index(); at < rows * f.units; at += kRingWarps) {
    const int row = at / f.units, column = (at - row * f.units) * kUnitColumns + lane * 8;
    const auto* x = reinterpret_cast<const __nv_bfloat16*>(f.p.x) + (first_row + row) * f.p.x_stride;
    float v[8];
    unpack_eight(load_shared_input_if(column < f.p.k ? x + column : x, column < f.p.k), v);
    staged.put(v, 0, at, true);
  }
}

// Multiplies all units of the stream. Partial sums: [tile][parts][16 rows]; `unit_of_x(tile)`: first staged unit.
template <DType kFormat, class Stream, class UnitOfX>
__device__ __forceinline__ void multiply_stream(Stream& stream, int tiles, int units, const GemvX<kFormat>& staged,
                                                UnitOfX unit_of_x, float* partials, int parts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  UnitPlace<> place(warp_index(), units);
  float sums[2] = {0, 0};
#pragma unroll 1
  while (place.tile < tiles) {
    UnitFragment<kFormat> unit;
    typename GemvX<kFormat>::Scales scales;
    typename GemvX<kFormat>::Own own;
    own.load(staged, unit_of_x(place.tile) + place.unit, lane);
    const uint8_t* from = stream.wait();
    unit.load_bits(from, lane);
    scales.load(from, lane);
    stream.refill();
    multiply_unit(unit, scales, own, lane, sums);
    const int at = place.tile * parts + (place.unit & (kRingWarps - 1));
    if (place.advance(units) > 0) put_rows(partials + at * kTileRows, lane, sums);
  }
}

__device__ __forceinline__ float sum_of_parts(const float* partials, int tile, int row, int parts) {
  float sum = 0;
  for (int part = 0; part < parts; ++part) sum += partials[(tile * parts + part) * kTileRows + row];
  return sum;
}

template <DType kFormat>
__global__ void __launch_bounds__(kPairsThreads, 1) grouped_packed_pairs(const __grid_constant__ PackedPairsParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this kernel
  extern __shared__ __align__(128) uint8_t rings[];
  const GroupedParams& p = f.p;
  const int block = static_cast<int>(blockIdx.x), together = p.half > 0 ? 2 : 1;
  const int first = f.shares.first(block), tiles = f.shares.count(block) * together, parts = min(f.units, kRingWarps);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int pair = static_cast<int>(blockIdx.y), group = p.group_of(pair);
  if (group < 0) return;
  const auto* matrix = reinterpret_cast<const uint8_t*>(p.matrix(group));
  const int64_t tile_bytes = static_cast<int64_t>(f.units) * Unit<kFormat>::kSize;
  const auto first_unit = [&](int tile) -> const uint8_t* {
    const int row_tile = p.half > 0 ? first + tile / 2 + tile % 2 * (p.half / kUnitRows) : first + tile;
    return matrix + row_tile * tile_bytes;
  };
  TileStream<kFormat, decltype(first_unit)> stream(rings, tiles, f.units, matrix, first_unit);
  const GemvX<kFormat> staged(rings + kRingWarps * stream.kSlots * stream.kSize, f.units);
  float* partials = staged.end(f.units);
  stage_rows<kFormat>(f, p.x_row(pair), 1, staged);
  __syncthreads();
  multiply_stream<kFormat>(
      stream, tiles, f.units, staged, [](int) { return 0; }, partials, parts);
  __syncthreads();
  for (int item = static_cast<int>(threadIdx.x); item < tiles / together * kTileRows; item += kPairsThreads) {
    const int tile = item / kTileRows, row = item % kTileRows, output = first * kTileRows + item;
    if (output >= p.outputs) break;
    const float gate = sum_of_parts(partials, tile * together, row, parts);
    const float up = together == 2 ? sum_of_parts(partials, tile * 2 + 1, row, parts) : 0;
    store_pair(p, pair, group, output, gate, up);
  }
#endif
}

template <DType kFormat>
__global__ void __launch_bounds__(kPairsThreads, 1) sum_packed_pairs(const __grid_constant__ PackedPairsParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint8_t rings[];
  __shared__ int groups[kPairsMostPerRow];
  const GroupedParams& p = f.p;
  const int block = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y), first_pair = row * p.per_row;
  const int first = f.shares.first(block), count = f.shares.count(block), parts = min(f.units, kRingWarps);
  const int tiles = count * p.per_row;  // all pairs of a tile, then those of the next
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (static_cast<int>(threadIdx.x) < p.per_row) {
    groups[threadIdx.x] = p.group_of(first_pair + static_cast<int>(threadIdx.x));
  }
  __syncthreads();
  const int64_t tile_bytes = static_cast<int64_t>(f.units) * Unit<kFormat>::kSize;
  const auto first_unit = [&](int tile) -> const uint8_t* {
    const int of_matrix = tile / p.per_row, group = groups[tile - of_matrix * p.per_row];
    if (group < 0) return nullptr;
    return reinterpret_cast<const uint8_t*>(p.matrix(group)) + (first + of_matrix) * tile_bytes;
  };
  TileStream<kFormat, decltype(first_unit)> stream(rings, tiles, f.units, p.weights, first_unit);
  const int staged_units = p.per_row * f.units;
  const GemvX<kFormat> staged(rings + kRingWarps * stream.kSlots * stream.kSize, staged_units);
  float* partials = staged.end(staged_units);
  stage_rows<kFormat>(f, first_pair, p.per_row, staged);
  __syncthreads();
  const auto unit_of_x = [&](int tile) { return tile % p.per_row * f.units; };
  multiply_stream<kFormat>(stream, tiles, f.units, staged, unit_of_x, partials, parts);
  __syncthreads();
  for (int item = static_cast<int>(threadIdx.x); item < tiles * kTileRows; item += kPairsThreads) {
    const int tile = item / kTileRows, choice = tile % p.per_row, group = groups[choice];
    const int output = (first + tile / p.per_row) * kTileRows + item % kTileRows;
    float* own = partials + tile * parts * kTileRows + item % kTileRows;
    const float sum = sum_of_parts(partials, tile, item % kTileRows, parts);
    *own = group >= 0 && output < p.outputs ? pair_output(p, first_pair + choice, group, output, sum, 0) : 0;
  }
  __syncthreads();
  for (int item = static_cast<int>(threadIdx.x); item < count * kTileRows; item += kPairsThreads) {
    const int output = first * kTileRows + item;
    if (output >= p.outputs) break;
    const float* own = partials + item / kTileRows * p.per_row * parts * kTileRows + item % kTileRows;
    float sum = 0;
    for (int choice = 0; choice < p.per_row; ++choice) sum += own[choice * parts * kTileRows];
    p.y.set(row, output, p.y.get(row, output) + sum);
  }
#endif
}

// `tiles`: most of a block, all pairs counted.
template <DType kFormat>
int packed_pairs_bytes(int staged_units, int tiles, int units) {
  constexpr int kRing = kRingWarps * Unit<kFormat>::kSize;
  return kPairsRings / kRing * kRing + GemvX<kFormat>::bytes(staged_units) +
         tiles * min(units, kRingWarps) * kTileRows * 4;
}

template <DType kFormat>
cudaError_t launch_packed_pairs(const PackedPairsParams& params, LaunchShape shape, const CudaStep& step) {
  return params.p.sum ? launch_kernel(sum_packed_pairs<kFormat>, shape, step, params)
                      : launch_kernel(grouped_packed_pairs<kFormat>, shape, step, params);
}

// hopper_*.cu instantiate the formats, so that they compile in parallel.
#define MILLRACE_GROUPED_PAIRS(PREFIX, F) \
  PREFIX template cudaError_t launch_packed_pairs<DType::F>(const PackedPairsParams&, LaunchShape, const CudaStep&);

}  // namespace millrace
