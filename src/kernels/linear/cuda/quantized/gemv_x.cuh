// Stages the token of gemv.cuh in shared memory, unchanged or times the weights of its norm.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/quantized/digits.cuh"
#include "kernels/linear/cuda/quantized/multiply.cuh"
#include "kernels/linear/cuda/quantized/unit_ring.cuh"
#include "kernels/linear/cuda/shared_norm.cuh"

namespace millrace {

inline constexpr int kGemvThreads = 32 * kRingWarps;
inline constexpr int kGemvMaxNormed = 2 * kRingWarps * kUnitColumns;  // longest x whose norm a block computes

// x in the form that the products need, and a lane's part of it.
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
  const void* x;      // bf16; f32 with a norm
  const float* norm;  // [k] or null: the RMS norm of x is multiplied
  SharedNorm shared;  // one of the halves of a shared norm, or neither
  int k, units;       // units along K
  int slots;          // per ring
  TileShares shares;
  LinearOutput out;
};

// Stores a warp's part of the sum of squares of x, for norm_factor().
__device__ __forceinline__ void leave_squares(float* squares, float sum) {
  const int warp = warp_index();  // contains a shuffle: all lanes must execute it
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if (threadIdx.x % 32 == 0) squares[warp] = sum;
}

// Sum of the front layer's sums of squares from this thread's part `first` on.
__device__ __forceinline__ float squares_from(const SharedNorm& norm, int first) {
  float sum = 0;
#pragma unroll 1
  for (int i = first; i < norm.k / static_cast<int>(kNormPart); i += kGemvThreads) sum += __ldcg(norm.squares + i);
  return sum;
}

// Stages x unchanged. kEach: units that a warp has in flight.
template <DType kFormat, int kEach>
__device__ __forceinline__ void place_plain(const PackedGemvParams& p, const GemvX<kFormat>& staged, float* squares) {
  const int warp = warp_index(), lane = threadIdx.x % 32;
  wait_for_previous_kernel();
  // Requested before x, used after it.
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

// Stages x times the weights of its RMS norm. The remaining 1 / rms is one factor for all of x and is needed only after
// the products: see norm_factor(). kEach: units per warp; their norm weights are loaded before the kernel that writes x
// ends.
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

// 1 / rms, once all warps have staged x and synchronized; 1 without a norm.
__device__ __forceinline__ float norm_factor(const PackedGemvParams& p, const float* squares) {
  if (p.norm == nullptr && p.shared.squares == nullptr) return 1;
  float total = 0;
#pragma unroll
  for (int i = 0; i < kRingWarps; ++i) total += squares[i];
  return rsqrtf(total / static_cast<float>(p.k) + p.shared.epsilon);
}

}  // namespace millrace
