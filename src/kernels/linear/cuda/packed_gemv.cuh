// Quantized weights times one token on Hopper. Each multiprocessor has a block with its share of the tiles of 16 rows;
// warps stream units of them through rings of their own (unit_ring.cuh) and meet only when x is there and when
// their sums are added up.
//
// The rings are filled before the kernel in front has ended: what they hold hides the border between kernels.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/packed_digits.cuh"
#include "kernels/linear/cuda/packed_multiply.cuh"
#include "kernels/linear/cuda/shared_norm.cuh"
#include "kernels/linear/cuda/unit_ring.cuh"

namespace millrace {

inline constexpr int kGemvThreads = 32 * kRingWarps;
inline constexpr int kGemvMaxNormed = 2 * kRingWarps * kUnitColumns;  // columns of x whose norm a block computes

inline constexpr int kGemvAlone = 116 * 1024;  // bytes of shared memory of which only one block can have so many

// What a block takes of a multiprocessor. Two blocks of one kernel must never meet there: others would then have none.
template <bool kHalf>
struct GemvShare;

// Half of it, where that is enough: the next kernel fills its rings while this one runs. In a model kernels that add to
// the residual stream and kernels that do not take turns; one of each fits, and each finds the one before it
// everywhere. After attention, which is not everywhere, comes one that adds: it takes so much that two do not fit.
template <>
struct GemvShare<true> {
  static constexpr int kBound = 1024;  // threads that registers are shared out for
  static constexpr int kRings = 84 * 1024;
  static constexpr int kTiles = 16;         // whose sums a block keeps before it stores them
  static constexpr int kMost = 108 * 1024;  // bytes of shared memory
};

// Most of it: for long rows, and for formats of which half would hold but one slot of each ring. A block of attention's
// fits beside.
template <>
struct GemvShare<false> {
  static constexpr int kBound = 896;
  static constexpr int kRings = 160 * 1024;
  static constexpr int kTiles = 32;
  static constexpr int kMost = 224 * 1024;
};

template <DType kFormat>
inline constexpr bool kGemvHalves = (kRingWarps * 2) * Unit<kFormat>::kSize <= GemvShare<true>::kRings;

// x as the products want it, and what a lane has of it.
template <DType kFormat, bool kDigits = kHasDigits<kFormat>>
struct GemvX : UnitDigits<kFormat, 1> {
  using UnitDigits<kFormat, 1>::UnitDigits;
  using Own = OwnDigits<kFormat, 1>;
  using Scales = LaneScales<kFormat, 1>;
};
template <DType kFormat>
struct GemvX<kFormat, false> : UnitX<kFormat, 1> {
  using Own = OwnRuns<kFormat>;
  using Scales = RunScales<kFormat>;
  static __host__ __device__ int bytes(int units) { return UnitX<kFormat, 1>::bytes(1, units); }
  __device__ GemvX(uint8_t* shared, int units) : UnitX<kFormat, 1>(shared, 1, units) {}
};

struct PackedGemvParams {
  const uint8_t* weights;
  const void* x;      // bf16; f32 where there is a norm
  const float* norm;  // [k] or null: the RMS norm of x is what is multiplied
  SharedNorm shared;  // either half of a norm, or none
  int k, units;       // units along K
  int slots;          // of each ring
  TileShares shares;
  LinearOutput out;
};

// A warp's part of the squares of x, for norm_factor().
__device__ __forceinline__ void leave_squares(float* squares, float sum) {
  const int warp = warp_index();  // a shuffle, too: of all lanes
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if (threadIdx.x % 32 == 0) squares[warp] = sum;
}

// What the layer in front left of them, from the thread's part `first` on.
__device__ __forceinline__ float squares_from(const SharedNorm& norm, int first) {
  float sum = 0;
#pragma unroll 1
  for (int i = first; i < norm.k / static_cast<int>(kNormPart); i += kGemvThreads) sum += __ldcg(norm.squares + i);
  return sum;
}

// x as it is. kEach: units that a warp has under way at once.
template <DType kFormat, int kEach>
__device__ __forceinline__ void place_plain(const PackedGemvParams& p, const GemvX<kFormat>& staged, float* squares) {
  const int warp = warp_index(), lane = threadIdx.x % 32;
  wait_for_previous_kernel();
  // Asked for before x, and wanted behind it.
  const bool shares = p.shared.squares != nullptr;
  const int part = static_cast<int>(threadIdx.x);
  const float part_squares = shares && part < p.k / static_cast<int>(kNormPart) ? __ldcg(p.shared.squares + part) : 0;
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
  if (shares) leave_squares(squares, part_squares + squares_from(p.shared, part + kGemvThreads));
}

// x times the weights of its RMS norm. What is left of the norm is one factor for all of x, which need not be known
// before the products are: see norm_factor(). kEach: units for each warp, whose norm weights are fetched before the
// kernel that writes x ends.
template <DType kFormat, int kEach>
__device__ __forceinline__ void place_normed(const PackedGemvParams& p, const GemvX<kFormat>& staged, float* squares) {
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
  float sum = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    float v[8];
    x[e].times(weights[e], v);
    staged.put(v, 0, warp + e * kRingWarps, warp + e * kRingWarps < p.units);
    sum += x[e].squares();
  }
  leave_squares(squares, sum);
}

// The rest of the norm, once all warps have placed their x and met; 1 where there is none.
__device__ __forceinline__ float norm_factor(const PackedGemvParams& p, const float* squares) {
  if (p.norm == nullptr && p.shared.squares == nullptr) return 1;
  float total = 0;
#pragma unroll
  for (int i = 0; i < kRingWarps; ++i) total += squares[i];
  return rsqrtf(total / static_cast<float>(p.k) + p.shared.epsilon);
}

// The outputs of a block's tiles, one for each thread in turn: 16 of a tile, or 8 where gate and up become one.
class TileOutputs {
 public:
  // Partial sums lie as [tile][part][16 rows].
  __device__ __forceinline__ TileOutputs(const LinearOutput& out, const CudaNormAhead& ahead, int first_tile, int parts)
      : out_(out),
        ahead_(ahead),
        each_bits_(out.gate_up ? 3 : 4),
        first_column_(first_tile << each_bits_),
        parts_(parts) {
    // Where there is something to add to, the first is asked for long before it is needed.
    const int column = first_column_ + static_cast<int>(threadIdx.x);
    if (out_.accumulate && column < columns()) before_ = load_output(out_, column);
    if (ahead_.weights != nullptr && column < columns()) weight_ = ahead_.weights[column];
  }

  // Adds up and stores those of the tiles [first, end) of the block.
  __device__ __forceinline__ void store(const float* partials, int first, int end, float factor) const {
#pragma unroll 1
    for (int item = (first << each_bits_) + int(threadIdx.x); item < end << each_bits_; item += kGemvThreads) {
      const int tile = item >> each_bits_, row_of_tile = item - (tile << each_bits_);
      const float* from = partials + (tile - first) * parts_ * kTileRows + row_of_tile;
      const int column = first_column_ + item;
      if (column >= columns()) break;
      const int row = out_.gate_up ? column / 8 * 16 + column % 8 : column;
      float y = factor * total(from) + bias(row);
      if (out_.gate_up) {
        y = silu_times(y, factor * total(from + 8) + bias(row + 8));
      } else if (out_.accumulate) {
        y += item == static_cast<int>(threadIdx.x) ? before_ : load_output(out_, column);
      }
      LinearOutput out = out_;
      out.accumulate = false;
      const float squares = store_four(out, 0, column, {y, 0, 0, 0}, 1);
      if (ahead_.weights != nullptr) {
        store_ahead(column, y, item == static_cast<int>(threadIdx.x) ? weight_ : ahead_.weights[column]);
      }
      if (out_.sum_squares != nullptr) atomicAdd(out_.sum_squares, squares);
    }
  }

 private:
  // Half of the norm that follows. The 16 outputs of a tile are those of half a warp.
  __device__ __forceinline__ void store_ahead(int column, float y, float weight) const {
    static_cast<__nv_bfloat16*>(ahead_.scaled)[column] = rounded<__nv_bfloat16>(y * weight);
    float squares = y * y;
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) {
      squares += __shfl_xor_sync(0xffffu << (threadIdx.x & 16), squares, mask);
    }
    if (column % kNormPart == 0) ahead_.squares[column / kNormPart] = squares;
  }
  __device__ __forceinline__ int columns() const { return out_.gate_up ? out_.n / 2 : out_.n; }
  __device__ __forceinline__ float bias(int row) const { return out_.bias != nullptr ? out_.bias[row] : 0.f; }
  __device__ __forceinline__ float total(const float* from) const {
    float sum = 0;
    if (parts_ == kRingWarps) {
#pragma unroll  // all of them are read at once
      for (int part = 0; part < kRingWarps; ++part) sum += from[part * kTileRows];
    } else {
#pragma unroll 1
      for (int part = 0; part < parts_; ++part) sum += from[part * kTileRows];
    }
    return sum;
  }

  const LinearOutput& out_;
  const CudaNormAhead& ahead_;
  int each_bits_, first_column_, parts_;  // each tile has 2^each_bits_ outputs
  float before_ = 0, weight_ = 0;
};

// A warp's sums of a tile: its rows in order. Of each two lanes one adds up row g, the other row g + 8.
__device__ __forceinline__ void put_rows(float* place, int lane, float (&sums)[2]) {
  const bool odd = lane % 2 != 0;
  float sum = odd ? sums[1] : sums[0];
  sum += __shfl_xor_sync(0xffffffffu, odd ? sums[0] : sums[1], 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (lane % 4 < 2) place[lane / 4 + 8 * (lane % 4)] = sum;
  sums[0] = sums[1] = 0;
}

// Where a block has what it multiplies: the sums of a norm, x, and the sums of its tiles behind the rings.
template <DType kFormat>
struct GemvSpace {
  static constexpr int kSquaresBytes = kRingWarps * 4;
  float* squares;  // of each warp's part of x
  GemvX<kFormat> staged;
  float* partials;
  int parts;  // warps that share a tile

  __device__ __forceinline__ GemvSpace(uint8_t* behind_rings, int units)
      : squares(reinterpret_cast<float*>(behind_rings)),
        staged(behind_rings + kSquaresBytes, units),
        partials(staged.end(units)),
        parts(min(units, kRingWarps)) {}

  // For so many units of x, of a block that has `tiles` tiles and keeps the sums of `kept`.
  static int bytes(int units, int tiles, int kept) {
    return kSquaresBytes + GemvX<kFormat>::bytes(units) + min(tiles, kept) * min(units, kRingWarps) * kTileRows * 4;
  }
};

// A unit in registers. Where there are enough of them it is there before x is, and the ring fetches one more.
template <DType kFormat>
struct HeldUnit {
  static constexpr bool kAhead = kHasDigits<kFormat>;
  UnitFragment<kFormat> unit;
  typename GemvX<kFormat>::Scales scales;

  template <class Ring>
  __device__ __forceinline__ void take(Ring& ring, int lane) {
    const uint8_t* from = ring.wait();
    unit.load_bits(from, lane);
    scales.load(from, lane);
    ring.refill();
  }
};

// A block's tiles, once x is there; kKept of them before their sums are stored.
template <DType kFormat, int kKept, UnitOrder kOrder, class Ring>
__device__ __forceinline__ void multiply_tiles(const PackedGemvParams& p, Ring& ring, HeldUnit<kFormat>& held,
                                               const GemvSpace<kFormat>& space) {
  const int lane = threadIdx.x % 32, block = static_cast<int>(blockIdx.x), tiles = p.shares.count(block);
  const TileOutputs outputs(p.out, p.shared.ahead, p.shares.first(block), space.parts);
  UnitPlace<kOrder> place(warp_index(), p.units);
  typename GemvX<kFormat>::Own own;
  own.load(space.staged, place.unit, lane);
  float sums[2] = {0, 0};
#pragma unroll 1
  for (int first = 0; first < tiles; first += kKept) {
    const int end = min(first + kKept, tiles);
#pragma unroll 1
    while (place.tile < end) {
      if (kOrder != UnitOrder::Stays) own.load(space.staged, place.unit, lane);
      if (!held.kAhead) held.take(ring, lane);
      multiply_unit(held.unit, held.scales, own, lane, sums);
      const int at = (place.tile - first) * space.parts + (place.unit & (kRingWarps - 1));
      const bool ends = place.advance(p.units) > 0;
      if (held.kAhead && place.tile < tiles) held.take(ring, lane);
      if (ends) put_rows(space.partials + at * kTileRows, lane, sums);
    }
    const float norm = norm_factor(p, space.squares);
    __syncthreads();
    outputs.store(space.partials, first, end, norm);
    if (end < tiles) __syncthreads();
  }
}

template <int kEach>
inline constexpr UnitOrder kGemvOrder = kEach == 1   ? UnitOrder::Stays
                                        : kEach == 2 ? UnitOrder::Any
                                                     : UnitOrder::Long;

// kEach: units of x for each warp, in the order above; more than those come in turn, but a norm must find all of x
// there.
template <DType kFormat, bool kHalf, bool kNormed, int kEach>
__global__ void __launch_bounds__(GemvShare<kHalf>::kBound, 1) packed_gemv(const __grid_constant__ PackedGemvParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this
  using U = Unit<kFormat>;
  extern __shared__ __align__(128) uint8_t rings[];
  const int block = static_cast<int>(blockIdx.x);
  const uint8_t* weights = p.weights + static_cast<int64_t>(p.shares.first(block)) * p.units * U::kSize;
  UnitRing<kFormat, GemvShare<kHalf>::kRings, kGemvOrder<kEach>> ring(weights, p.units, p.units, p.shares.count(block),
                                                                      rings, p.slots);
  const GemvSpace<kFormat> space(rings + kRingWarps * p.slots * U::kSize, p.units);
  HeldUnit<kFormat> held;
  let_next_kernel_start();  // before x is there, so that its rings are full when this one ends
  if (held.kAhead && warp_index() < p.shares.count(block) * p.units) held.take(ring, threadIdx.x % 32);
  if constexpr (kNormed) {
    place_normed<kFormat, kEach>(p, space.staged, space.squares);
  } else {
    place_plain<kFormat, kEach>(p, space.staged, space.squares);
  }
  __syncthreads();
  multiply_tiles<kFormat, GemvShare<kHalf>::kTiles, kGemvOrder<kEach>>(p, ring, held, space);
#endif
}

// Slots of each ring in a block with `tiles` tiles: no more than a warp has units.
template <DType kFormat, bool kHalf>
int gemv_slots(int units, int tiles) {
  return min(UnitRing<kFormat, GemvShare<kHalf>::kRings>::kSlots, (tiles * units + kRingWarps - 1) / kRingWarps);
}

// Shared memory that such a block needs: rings, and what is behind them.
template <DType kFormat, bool kHalf>
int gemv_shared_bytes(int units, int tiles) {
  return kRingWarps * gemv_slots<kFormat, kHalf>(units, tiles) * Unit<kFormat>::kSize +
         GemvSpace<kFormat>::bytes(units, tiles, GemvShare<kHalf>::kTiles);
}

// `tiles`: the most that a block has.
template <DType kFormat, bool kHalf>
cudaError_t launch_gemv_share(PackedGemvParams params, LaunchShape shape, const CudaStep& step, int tiles) {
  const bool is_short = kRingWarps % params.units == 0, normed = params.norm != nullptr;
  int bytes = gemv_shared_bytes<kFormat, kHalf>(params.units, tiles);
  if (!kHalf || params.out.accumulate) bytes = max(bytes, kGemvAlone);
  shape.shared_bytes = static_cast<size_t>(bytes);
  params.slots = gemv_slots<kFormat, kHalf>(params.units, tiles);
  if (normed) {
    return is_short ? launch_kernel(packed_gemv<kFormat, kHalf, true, 1>, shape, step, params)
                    : launch_kernel(packed_gemv<kFormat, kHalf, true, 2>, shape, step, params);
  }
  return is_short                    ? launch_kernel(packed_gemv<kFormat, kHalf, false, 1>, shape, step, params)
         : params.units < kRingWarps ? launch_kernel(packed_gemv<kFormat, kHalf, false, 2>, shape, step, params)
                                     : launch_kernel(packed_gemv<kFormat, kHalf, false, 4>, shape, step, params);
}

// Whether half of a multiprocessor is enough.
template <DType kFormat>
bool gemv_halves(int units, int tiles) {
  if constexpr (kGemvHalves<kFormat>) return gemv_shared_bytes<kFormat, true>(units, tiles) <= GemvShare<true>::kMost;
  return false;
}

template <DType kFormat>
cudaError_t launch_gemv(const PackedGemvParams& params, const LaunchShape& shape, const CudaStep& step, int tiles) {
  if constexpr (kGemvHalves<kFormat>) {
    if (gemv_halves<kFormat>(params.units, tiles)) return launch_gemv_share<kFormat, true>(params, shape, step, tiles);
  }
  return launch_gemv_share<kFormat, false>(params, shape, step, tiles);
}

}  // namespace millrace
