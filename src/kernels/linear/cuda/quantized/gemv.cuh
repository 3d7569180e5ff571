// Quantized weights times one token on Hopper. Each multiprocessor runs one block with its share of the tiles of 16
// rows. Each warp streams units through its own ring (unit_ring.cuh); warps synchronize only when x is staged and when
// their sums are added.
//
// The rings are filled before the previous kernel ends, which hides the gap between kernels.
#pragma once

#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/gemv_outputs.cuh"

namespace millrace {

inline constexpr int kGemvAlone = 116 * 1024;  // bytes of shared memory that only one block per multiprocessor can have

// Share of a multiprocessor that a block takes. Two blocks of one kernel must never run on the same multiprocessor:
// another one would then have none.
template <bool kHalf>
struct GemvShare;

// Half of it, if that is enough: the next kernel fills its rings while this one runs. In a model, kernels that add to
// the residual stream alternate with kernels that do not. One of each fits on a multiprocessor, and each finds its
// predecessor on every multiprocessor. Attention does not occupy every multiprocessor; the kernel after it adds, and
// takes so much that two of them do not fit.
template <>
struct GemvShare<true> {
  static constexpr int kBound = 1024;  // threads that the register allocation assumes
  static constexpr int kRings = 84 * 1024;
  static constexpr int kTiles = 16;         // tiles whose sums a block keeps before it stores them
  static constexpr int kMost = 108 * 1024;  // bytes of shared memory
};

// Most of it: for long rows, and for formats of which half would hold only one slot per ring. A block of attention
// still fits beside it.
template <>
struct GemvShare<false> {
  static constexpr int kBound = 896;
  static constexpr int kRings = 160 * 1024;
  static constexpr int kTiles = 32;
  static constexpr int kMost = 224 * 1024;
};

template <DType kFormat>
inline constexpr bool kGemvHalves = (kRingWarps * 2) * Unit<kFormat>::kSize <= GemvShare<true>::kRings;

// A block's shared memory after the rings: sums of a norm, x, and the sums of its tiles.
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

  // Size for `units` units of x, in a block that has `tiles` tiles and keeps the sums of `kept`.
  static int bytes(int units, int tiles, int kept) {
    return kSquaresBytes + GemvX<kFormat>::bytes(units) + min(tiles, kept) * min(units, kRingWarps) * kTileRows * 4;
  }
};

// A unit in registers. If registers suffice, it is loaded before x arrives, and the ring holds one more unit.
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

// Multiplies a block's tiles once x is staged; stores the sums after every kKept tiles.
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

// kEach: units of x that each warp stages at once. Without a norm, further units follow in a loop; a norm needs all of
// x at once.
template <DType kFormat, bool kHalf, bool kNormed, int kEach>
__global__ void __launch_bounds__(GemvShare<kHalf>::kBound, 1) packed_gemv(const __grid_constant__ PackedGemvParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this kernel
  using U = Unit<kFormat>;
  extern __shared__ __align__(128) uint8_t rings[];
  const int block = static_cast<int>(blockIdx.x);
  const uint8_t* weights = p.weights + static_cast<int64_t>(p.shares.first(block)) * p.units * U::kSize;
  UnitRing<kFormat, GemvShare<kHalf>::kRings, kGemvOrder<kEach>> ring(weights, p.units, p.units, p.shares.count(block),
                                                                      rings, p.slots);
  const GemvSpace<kFormat> space(rings + kRingWarps * p.slots * U::kSize, p.units);
  HeldUnit<kFormat> held;
  let_next_kernel_start();  // before x arrives, so that the next kernel's rings are full when this one ends
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

// Slots of each ring in a block with `tiles` tiles: at most the number of units of a warp.
template <DType kFormat, bool kHalf>
int gemv_slots(int units, int tiles) {
  return min(UnitRing<kFormat, GemvShare<kHalf>::kRings>::kSlots, (tiles * units + kRingWarps - 1) / kRingWarps);
}

// Shared memory of such a block: rings and GemvSpace.
template <DType kFormat, bool kHalf>
int gemv_shared_bytes(int units, int tiles) {
  return kRingWarps * gemv_slots<kFormat, kHalf>(units, tiles) * Unit<kFormat>::kSize +
         GemvSpace<kFormat>::bytes(units, tiles, GemvShare<kHalf>::kTiles);
}

// `tiles`: maximum per block.
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

// Whether half of a multiprocessor suffices.
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

// KIND is `extern` in files that only launch.
#define MILLRACE_GEMV_INSTANCE(KIND, F) \
  KIND template cudaError_t launch_gemv<DType::F>(const PackedGemvParams&, const LaunchShape&, const CudaStep&, int);
