// Quantized weights times one token on Hopper. Each multiprocessor has a block with its share of the tiles of 16 rows;
// warps stream units of them through rings of their own (unit_ring.cuh) and meet only when x is there and when
// their sums are added up.
//
// The rings are filled before the kernel in front has ended: what they hold hides the border between kernels.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/packed_multiply.cuh"
#include "kernels/linear/cuda/unit_ring.cuh"

namespace millrace {

inline constexpr int kGemvThreads = 32 * kRingWarps;
inline constexpr int kGemvShort = kRingWarps * kUnitColumns;  // columns of x of which each warp has a unit
inline constexpr int kGemvMaxNormed = 2 * kGemvShort;         // columns of x whose norm a block computes

inline constexpr int kGemvAlone = 116 * 1024;  // bytes of shared memory of which only one block can have so many

// What a block takes of a multiprocessor. Two blocks of one kernel must never meet there: others would then have none.
template <bool kHalf>
struct GemvShare;

// Most of it. Registers are shared out so that a block of attention's fits beside.
template <>
struct GemvShare<false> {
  static constexpr int kBound = 896;  // threads
  static constexpr int kRings = 160 * 1024;
  static constexpr int kTiles = 32;         // whose sums a block keeps before it stores them
  static constexpr int kMost = 224 * 1024;  // bytes of shared memory
};

// Half of it: the next kernel fills its rings while this one runs. In a model kernels that add to the residual stream
// and kernels that do not take turns; one of each fits, and each finds the one before it everywhere. After attention,
// which is not everywhere, comes one that adds: it takes so much that two do not fit.
template <>
struct GemvShare<true> {
  static constexpr int kBound = 1024;
  static constexpr int kRings = 84 * 1024;
  static constexpr int kTiles = 16;
  static constexpr int kMost = 108 * 1024;
};

// Half of a multiprocessor is too little where a ring has a single slot.
template <DType kFormat>
inline constexpr bool kGemvHalves = (kRingWarps * 2) * Unit<kFormat>::kSize <= GemvShare<true>::kRings;

struct PackedGemvParams {
  const uint8_t* weights;
  const void* x;      // bf16; f32 where there is a norm
  const float* norm;  // [k] or null: the RMS norm of x is what is multiplied
  float epsilon;
  int k, units;  // units along K
  int slots;     // of each ring
  TileShares shares;
  LinearOutput out;
};

// x as it is. kEach: units that a warp has under way at once.
template <DType kFormat, int kEach>
__device__ __forceinline__ void place_plain(const PackedGemvParams& p, const UnitX<kFormat, 1>& staged) {
  const int warp = warp_index(), lane = threadIdx.x % 32;
  wait_for_previous_kernel();
#pragma unroll 1
  for (int first = warp; first < p.units; first += kEach * kRingWarps) {
    uint4 rows[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int column = (first + e * kRingWarps) * kUnitColumns + lane * 8;
      rows[e] = column < p.k ? load_shared_input(static_cast<const __nv_bfloat16*>(p.x) + column) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      float v[8];
      unpack_eight(rows[e], v);
      staged.put(v, 0, first + e * kRingWarps, first + e * kRingWarps < p.units);
    }
  }
}

// The RMS norm of x. kEach: units for each warp, whose norm weights are fetched before the kernel that writes x ends.
template <DType kFormat, int kEach>
__device__ __forceinline__ void place_normed(const PackedGemvParams& p, const UnitX<kFormat, 1>& staged) {
  __shared__ float parts[kRingWarps];
  const int warp = warp_index(), lane = threadIdx.x % 32;
  const auto column = [&](int e) { return (warp + e * kRingWarps) * kUnitColumns + lane * 8; };
  EightFloats weights[kEach], x[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    weights[e] = column(e) < p.k ? EightFloats::load(p.norm + column(e)) : EightFloats{};
  }
  wait_for_previous_kernel();
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    x[e] = column(e) < p.k ? EightFloats::load(static_cast<const float*>(p.x) + column(e)) : EightFloats{};
  }
  float squares = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) squares += x[e].squares();
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, mask);
  if (lane == 0) parts[warp] = squares;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kRingWarps; ++i) total += parts[i];
  const float inverse = rsqrtf(total / static_cast<float>(p.k) + p.epsilon);
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    float v[8];
    x[e].scaled(weights[e], inverse, v);
    staged.put(v, 0, warp + e * kRingWarps, warp + e * kRingWarps < p.units);
  }
}

// The outputs of a block's tiles, one for each thread in turn: 16 of a tile, or 8 where gate and up become one.
class TileOutputs {
 public:
  // Partial sums lie as [tile][part][16 rows].
  __device__ __forceinline__ TileOutputs(const LinearOutput& out, int first_tile, int parts)
      : out_(out), each_(out.gate_up ? 8 : 16), first_column_(first_tile * each_), parts_(parts) {
    // Where there is something to add to, the first is asked for long before it is needed.
    const int column = first_column_ + static_cast<int>(threadIdx.x);
    if (out_.accumulate && column < columns()) before_ = load_output(out_, column);
  }

  // Adds up and stores those of the tiles [first, end) of the block.
  __device__ __forceinline__ void store(const float* partials, int first, int end) const {
#pragma unroll 1
    for (int item = first * each_ + static_cast<int>(threadIdx.x); item < end * each_; item += kGemvThreads) {
      const float* from = partials + (item / each_ - first) * parts_ * kTileRows + item % each_;
      const int column = first_column_ + item;
      if (column >= columns()) break;
      const int row = out_.gate_up ? column / 8 * 16 + column % 8 : column;
      float y = total(from) + bias(row);
      if (out_.gate_up) {
        y = silu_times(y, total(from + 8) + bias(row + 8));
      } else if (out_.accumulate) {
        y += item < kGemvThreads ? before_ : load_output(out_, column);
      }
      LinearOutput out = out_;
      out.accumulate = false;
      const float squares = store_four(out, 0, column, {y, 0, 0, 0}, 1);
      if (out_.sum_squares != nullptr) atomicAdd(out_.sum_squares, squares);
    }
  }

 private:
  __device__ __forceinline__ int columns() const { return out_.gate_up ? out_.n / 2 : out_.n; }
  __device__ __forceinline__ float bias(int row) const { return out_.bias != nullptr ? out_.bias[row] : 0.f; }
  __device__ __forceinline__ float total(const float* from) const {
    float sum = 0;
#pragma unroll  // all of them are read at once
    for (int part = 0; part < kRingWarps; ++part) sum += part < parts_ ? from[part * kTileRows] : 0.f;
    return sum;
  }

  const LinearOutput& out_;
  int each_, first_column_, parts_;
  float before_ = 0;
};

// A warp's sums of a tile: its rows in order.
__device__ __forceinline__ void put_rows(float* place, int lane, float (&sums)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
    if (lane % 4 == 0) place[lane / 4 + 8 * half] = sums[half];
    sums[half] = 0;
  }
}

// kEach: units of x for each warp; more than those come in turn, but a norm must find all of x there.
template <DType kFormat, bool kHalf, bool kNormed, int kEach>
__global__ void __launch_bounds__(GemvShare<kHalf>::kBound, 1) packed_gemv(const __grid_constant__ PackedGemvParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this
  using U = Unit<kFormat>;
  extern __shared__ __align__(128) uint8_t rings[];
  const int warp = warp_index(), lane = threadIdx.x % 32;
  const int block = static_cast<int>(blockIdx.x), first_tile = p.shares.first(block), tiles = p.shares.count(block);
  using Ring = UnitRing<kFormat, GemvShare<kHalf>::kRings>;
  constexpr int kKept = GemvShare<kHalf>::kTiles;
  Ring ring(p.weights + static_cast<int64_t>(first_tile) * p.units * U::kSize, p.units, p.units, tiles, rings, p.slots);
  uint8_t* zeros = rings + kRingWarps * p.slots * U::kSize;
  const UnitX<kFormat, 1> staged(zeros + kZeroBytes, 1, p.units);
  float* partials = staged.factors + p.units;
  const int parts = min(p.units, kRingWarps);
  UnitPlace place(warp, p.units);
  if (threadIdx.x < kZeroBytes / 4) reinterpret_cast<uint32_t*>(zeros)[threadIdx.x] = 0;
  if constexpr (kNormed) {
    place_normed<kFormat, kEach>(p, staged);
  } else {
    place_plain<kFormat, kEach>(p, staged);
  }
  __syncthreads();
  let_next_kernel_start();
  const TileOutputs outputs(p.out, first_tile, parts);
  float sums[2] = {0, 0};
#pragma unroll 1
  for (int first = 0; first < tiles; first += kKept) {
    const int end = min(first + kKept, tiles);
#pragma unroll 1
    while (place.tile < end) {
      const uint8_t* from = ring.wait();
      UnitFragment<kFormat> unit;
      RunScales<kFormat> scales;
      unit.load_bits(from, lane);
      scales.load(from, lane);
      ring.refill();
      float products[2] = {0, 0};
      multiply_unit<kFormat>(unit, scales, staged.x + place.unit * staged.kUnitBytes + lane % 4 * 16,
                             zeros + 64 + lane % 4 * 16, staged.starts + place.unit * U::kRuns,
                             staged.plain + place.unit * U::kRuns, lane, products);
      const float factor = staged.factors[place.unit];
#pragma unroll
      for (int half = 0; half < 2; ++half) sums[half] = fmaf(factor, products[half], sums[half]);
      const int at = (place.tile - first) * parts + (place.unit & (kRingWarps - 1));
      if (place.advance(p.units) > 0) put_rows(partials + at * kTileRows, lane, sums);
    }
    __syncthreads();
    outputs.store(partials, first, end);
    if (end < tiles) __syncthreads();
  }
#endif
}

// Slots of each ring in a block with `tiles` tiles: no more than a warp has units.
template <DType kFormat, bool kHalf>
int gemv_slots(int units, int tiles) {
  return min(UnitRing<kFormat, GemvShare<kHalf>::kRings>::kSlots, (tiles * units + kRingWarps - 1) / kRingWarps);
}

// Shared memory that such a block needs: rings, zeros, x, and the sums of its tiles.
template <DType kFormat, bool kHalf>
int gemv_shared_bytes(int units, int tiles) {
  return kRingWarps * gemv_slots<kFormat, kHalf>(units, tiles) * Unit<kFormat>::kSize + kZeroBytes +
         UnitX<kFormat, 1>::bytes(1, units) +
         min(tiles, GemvShare<kHalf>::kTiles) * min(units, kRingWarps) * kTileRows * 4;
}

// `tiles`: the most that a block has.
template <DType kFormat, bool kHalf>
cudaError_t launch_gemv(PackedGemvParams params, LaunchShape shape, const CudaStep& step, int tiles) {
  const bool is_short = params.k <= kGemvShort, normed = params.norm != nullptr;
  int bytes = gemv_shared_bytes<kFormat, kHalf>(params.units, tiles);
  if (!kHalf || params.out.accumulate) bytes = max(bytes, kGemvAlone);
  shape.shared_bytes = static_cast<size_t>(bytes);
  params.slots = gemv_slots<kFormat, kHalf>(params.units, tiles);
  if (normed) {
    return is_short ? launch_kernel(packed_gemv<kFormat, kHalf, true, 1>, shape, step, params)
                    : launch_kernel(packed_gemv<kFormat, kHalf, true, 2>, shape, step, params);
  }
  return is_short ? launch_kernel(packed_gemv<kFormat, kHalf, false, 1>, shape, step, params)
                  : launch_kernel(packed_gemv<kFormat, kHalf, false, 4>, shape, step, params);
}

template <DType kFormat>
cudaError_t launch_gemv_share(bool half, const PackedGemvParams& params, const LaunchShape& shape, const CudaStep& step,
                              int tiles) {
  if constexpr (kGemvHalves<kFormat>) {
    if (half) return launch_gemv<kFormat, true>(params, shape, step, tiles);
  }
  return launch_gemv<kFormat, false>(params, shape, step, tiles);
}

}  // namespace millrace
