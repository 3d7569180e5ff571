// x for the streaming kernels of quantized weights: f16 in the order of tensor-core fragments, in shared memory, with
// the sums over each run (columns that share a scale).
//
// Weights reach the tensor cores as f16 (see unit_fragments.cuh), so x must be f16, too. A power of two per unit of a
// token scales its largest number to 2^14; the rounding error of subnormals is below 2^-38 of it. MXFP4's numbers are
// bf16 below 2^-123; scaled to 2^26, x makes their products normal numbers.
#pragma once

#include "kernels/linear/cuda/quantized/unit_fragments.cuh"

namespace millrace {

// The reverse of unpack2().
template <class T>
__device__ __forceinline__ uint32_t pack2(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&two);
  } else {
    const __half2 two = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&two);
  }
}

template <DType kFormat, int kTokens>
struct UnitX {
  using U = Unit<kFormat>;
  static constexpr int kUnitBytes = kUnitColumns * 2;
  static constexpr int kPad = kTokens == 1 ? 0 : 64;  // between tokens, so that two of them cover all banks
  static constexpr int kSums = U::kFp4 ? 0 : U::kMinimum ? 2 : 1;
  static constexpr int kTop = U::kFp4 ? 26 : 14;           // exponent that the largest number of a unit is scaled to
  static constexpr bool kShifted = !U::kWide && !U::kFp4;  // odd pairs of weights are 16 times as large
  using Number = std::conditional_t<U::kFp4, __nv_bfloat16, __half>;

  uint8_t* x;  // [token][unit][block][t][4 pairs]: a lane's part of a block is 16 bytes
  int tokens;
  int stride;      // bytes between tokens
  float* starts;   // [unit][run][kTokens]: start values that cancel the offset of decoded weights, if they have one
  float* plain;    // [unit][run][kTokens]: sums of x, for formats with minima
  float* factors;  // [unit][kTokens]: factor of a sum of products

  static __host__ __device__ int bytes(int tokens, int units) {
    return tokens * (units * kUnitBytes + kPad) + units * (U::kRuns * kSums + 1) * kTokens * 4;
  }

  __device__ UnitX(uint8_t* shared, int tokens, int units)
      : x(shared), tokens(tokens), stride(units * kUnitBytes + kPad) {
    starts = reinterpret_cast<float*>(shared + tokens * stride);
    plain = starts + (U::kMinimum ? units * U::kRuns * kTokens : 0);
    factors = starts + kSums * units * U::kRuns * kTokens;
  }

  __device__ float* end(int units) const { return factors + units * kTokens; }

  // A warp stores one unit of a token; each lane holds eight consecutive elements. Writes only if `live`, but without a
  // branch around the whole, so that several calls can overlap.
  __device__ __forceinline__ void put(const float (&v)[8], int token, int unit, bool live) const {
    constexpr int kLanes = U::kRun / 8;  // lanes that share a run
    const int lane = threadIdx.x % 32, odd = lane % 2;
    float peak = 0, sum = 0;
#pragma unroll
    for (const float value : v) peak = fmaxf(peak, fabsf(value));
    // Non-negative floats compare like their bits.
    const uint32_t largest = __reduce_max_sync(0xffffffffu, __float_as_uint(peak));
    const int exponent = min(max(static_cast<int>(largest >> 23) - 127, -100), 127);
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + kTop - exponent) << 23);
    const float taken = kShifted && odd ? scale * 0.0625f : scale;
    auto* to = reinterpret_cast<uint32_t*>(x + token * stride + unit * kUnitBytes + lane / 4 * 64) + lane % 4;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      // Sums the rounded values: otherwise the offsets would not cancel.
      const uint32_t pair = pack2<Number>(v[2 * t] * taken, v[2 * t + 1] * taken);
      if (live) to[4 * t] = pair;
      const float2 two = unpack2<Number>(pair);
      sum += two.x + two.y;
    }
    if constexpr (kSums > 0) {
      if (kShifted && odd) sum *= 16;
      float start = -sum * (U::kStoredZero + (kShifted && odd ? 64.f : 1024.f));
#pragma unroll
      for (int mask = 1; mask < kLanes; mask *= 2) {
        start += __shfl_xor_sync(0xffffffffu, start, mask);
        sum += __shfl_xor_sync(0xffffffffu, sum, mask);
      }
      if (live && lane % kLanes == 0) {
        const int at = (unit * U::kRuns + lane / kLanes) * kTokens + token;
        starts[at] = start;
        if constexpr (U::kMinimum) plain[at] = sum;
      }
    }
    if (live && lane == 0)
      factors[unit * kTokens + token] = __uint_as_float(static_cast<uint32_t>(127 - kTop + exponent) << 23);
  }
};

// Eight consecutive elements of x as floats, from bf16 or from the residual stream.
__device__ __forceinline__ void unpack_eight(uint4 from, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = unpack2<__nv_bfloat16>(word(from, i));
    to[2 * i] = two.x;
    to[2 * i + 1] = two.y;
  }
}

struct EightFloats {
  float4 low, high;
  __device__ __forceinline__ static EightFloats load(const float* from) {
    return {__ldcg(reinterpret_cast<const float4*>(from)), __ldcg(reinterpret_cast<const float4*>(from) + 1)};
  }
  __device__ __forceinline__ float squares() const {
    return low.x * low.x + low.y * low.y + low.z * low.z + low.w * low.w +  //
           (high.x * high.x + high.y * high.y + high.z * high.z + high.w * high.w);
  }
  __device__ __forceinline__ void times(const EightFloats& by, float (&to)[8]) const { scaled(by, 1, to); }
  __device__ __forceinline__ void scaled(const EightFloats& by, float factor, float (&to)[8]) const {
    const float v[8] = {low.x * by.low.x,   low.y * by.low.y,   low.z * by.low.z,   low.w * by.low.w,
                        high.x * by.high.x, high.y * by.high.y, high.z * by.high.z, high.w * by.high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = v[i] * factor;
  }
};

}  // namespace millrace
