// x as the streaming kernel of quantized weights wants it: f16 in the order of the tensor cores' fragments, in shared
// memory for all of K, with the sums over each run of columns that shares a scale.
//
// Weights reach the tensor cores as f16 (unit_fragments.cuh says why), and so must x. A power of two for each token and
// unit brings the largest number there to 2^14: what is lost of others is less than 2^-38 of it.
#pragma once

#include "kernels/linear/cuda/barrier.cuh"
#include "kernels/linear/cuda/unit_fragments.cuh"

namespace millrace {

template <DType kFormat, int kTokens>
struct HalfX {
  using U = Unit<kFormat>;
  static constexpr int kUnitBytes = kUnitColumns * 2;
  static constexpr int kSums = U::kMinimum ? 2 : 1;

  uint8_t* x;      // [token][unit][block][t][4 pairs]: 16 bytes are what a lane wants of a block
  int stride;      // bytes from token to token; 64 more than the columns take, so that two tokens fall on all banks
  float* starts;   // [unit][run][kTokens]: what takes the offset of the decoded weights out again
  float* plain;    // the same of plain sums of x, for formats with minima
  float* factors;  // [unit][kTokens] what a unit's sum of products is to be multiplied with

  static __host__ __device__ int bytes(int tokens, int units) {
    return tokens * (units * kUnitBytes + 64) + units * kTokens * 4 * (U::kRuns * kSums + 1);
  }

  __device__ HalfX(uint8_t* shared, int tokens, int units) : x(shared), stride(units * kUnitBytes + 64) {
    starts = reinterpret_cast<float*>(shared + tokens * stride);
    plain = starts + (kSums - 1) * units * U::kRuns * kTokens;
    factors = plain + units * U::kRuns * kTokens;
  }

  // Asks for the rows as they are; one thread does. They are there when `arrived` says so.
  __device__ __forceinline__ void fetch(const __nv_bfloat16* from, int64_t from_stride, int k, int tokens,
                                        uint64_t* arrived) const {
    arrive_expecting(arrived, static_cast<uint32_t>(tokens * k * 2));
    for (int token = 0; token < tokens; ++token) {
      copy_bulk(x + token * stride, from + token * from_stride, static_cast<uint32_t>(k * 2), arrived);
    }
  }

  // Puts in order what has arrived. A warp takes 256 columns of a token at a time, a lane eight of them: nobody else
  // reads or writes those.
  __device__ __forceinline__ void convert(int k, int tokens, int units, int warp, int warps) const {
    const int lane = threadIdx.x % 32;
    for (int token = 0; token < tokens; ++token) {
      for (int unit = warp; unit < units; unit += warps) {
        uint4 v{0, 0, 0, 0};
        if (unit * kUnitColumns + lane * 8 < k) {
          v = *reinterpret_cast<const uint4*>(x + token * stride + unit * kUnitBytes + lane * 16);
        }
        __syncwarp();
        put(v, token, unit, lane);
      }
    }
  }

 private:
  __device__ __forceinline__ void put(const uint4& v, int token, int unit, int lane) const {
    constexpr int kLanes = U::kRun / 8;            // that share a run
    const bool left = !U::kWide && lane % 2 == 1;  // weights are 16 times as large here
    float values[8], peak = 0;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const float2 two = unpack2<__nv_bfloat16>(word(v, t));
      values[2 * t] = two.x;
      values[2 * t + 1] = two.y;
      peak = fmaxf(peak, fmaxf(fabsf(two.x), fabsf(two.y)));
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, mask));
    const int exponent = min(max(static_cast<int>(__float_as_uint(peak) >> 23) - 127, -100), 127);
    const float scale = power_of_two(14 - exponent), taken = left ? scale * 0.0625f : scale;
    if (lane == 0) factors[unit * kTokens + token] = power_of_two(exponent - 14);
    auto* to = reinterpret_cast<uint32_t*>(x + token * stride + unit * kUnitBytes + lane / 4 * 64) + lane % 4;
    float sum = 0;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const __half2 halves = __floats2half2_rn(values[2 * t] * taken, values[2 * t + 1] * taken);
      to[4 * t] = *reinterpret_cast<const uint32_t*>(&halves);
      sum += values[2 * t] * scale + values[2 * t + 1] * scale;
    }
    float start = -sum * (U::kStoredZero + (left ? 64.f : 1024.f));
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) {
      start += __shfl_xor_sync(0xffffffffu, start, mask);
      sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    }
    if (lane % kLanes == 0) {
      const int at = (unit * U::kRuns + lane / kLanes) * kTokens + token;
      starts[at] = start;
      if constexpr (U::kMinimum) plain[at] = sum;
    }
  }

  static __device__ __forceinline__ float power_of_two(int exponent) {
    return __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23);
  }
};

}  // namespace millrace
