// x as the streaming kernel of quantized weights wants it: f16 in the order of the tensor cores' fragments, in shared
// memory for all of K, with the sums over each run of columns that shares a scale.
//
// Weights reach the tensor cores as f16 (unit_fragments.cuh says why), and so must x. A power of two for each token
// brings its largest number to 2^14: what is lost of others is less than 2^-38 of it.
#pragma once

#include "kernels/linear/cuda/unit_fragments.cuh"

namespace millrace {

template <DType kFormat, int kTokens>
struct HalfX {
  using U = Unit<kFormat>;
  static constexpr int kUnitBytes = kUnitColumns * 2;
  static constexpr int kSums = U::kMinimum ? 2 : 1;

  uint8_t* x;       // [token][unit][block][t][4 pairs]: 16 bytes are what a lane wants of a block
  int stride;       // bytes from token to token; 64 more than the columns take, so that two tokens fall on all banks
  float* starts;    // [unit][run][kTokens]: what takes the offset of the decoded weights out again
  float* plain;     // the same of plain sums of x, for formats with minima
  uint32_t* peaks;  // [kTokens] bits of the largest |x|
  float* factors;   // [kTokens] what a sum of products is to be multiplied with

  static __host__ __device__ int bytes(int tokens, int units) {
    return tokens * (units * kUnitBytes + 64) + units * U::kRuns * kTokens * 4 * kSums + kTokens * 8;
  }

  __device__ HalfX(uint8_t* shared, int tokens, int units) : x(shared), stride(units * kUnitBytes + 64) {
    starts = reinterpret_cast<float*>(shared + tokens * stride);
    plain = starts + (kSums - 1) * units * U::kRuns * kTokens;
    peaks = reinterpret_cast<uint32_t*>(plain + units * U::kRuns * kTokens);
    factors = reinterpret_cast<float*>(peaks + kTokens);
  }

  __device__ __forceinline__ uint32_t* words(int token, int unit, int lane) const {
    return reinterpret_cast<uint32_t*>(x + token * stride + unit * kUnitBytes + lane / 4 * 64) + lane % 4;
  }

  // First half, before all threads meet: rows as they are, and their peaks. A warp takes 256 columns of a token at a
  // time, a lane eight of them. `peaks` must be zero.
  __device__ __forceinline__ void fetch(const __nv_bfloat16* from, int64_t from_stride, int k, int tokens, int units,
                                        int warp, int warps) const {
    constexpr int kAhead = 4;
    const int lane = threadIdx.x % 32, jobs = tokens * units;
    for (int first = warp; first < jobs; first += warps * kAhead) {
      uint4 v[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int job = first + i * warps, column = job % units * kUnitColumns + lane * 8;
        v[i] =
            job < jobs && column < k ? load_shared_input(from + job / units * from_stride + column) : uint4{0, 0, 0, 0};
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int job = first + i * warps;
        if (job >= jobs) break;
        float peak = 0;
        uint32_t* to = words(job / units, job % units, lane);
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          const float2 two = unpack2<__nv_bfloat16>(word(v[i], t));
          to[4 * t] = word(v[i], t);
          peak = fmaxf(peak, fmaxf(fabsf(two.x), fabsf(two.y)));
        }
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, mask));
        if (lane == 0) atomicMax(peaks + job / units, __float_as_uint(peak));
      }
    }
  }

  // Second half: a thread finds what it wrote itself.
  __device__ __forceinline__ void convert(int tokens, int units, int warp, int warps) const {
    constexpr int kLanes = U::kRun / 8;  // that share a run
    const int lane = threadIdx.x % 32, odd = lane % 2;
    for (int job = warp; job < tokens * units; job += warps) {
      const int token = job / units, unit = job % units;
      const int exponent = min(max(static_cast<int>(peaks[token] >> 23) - 127, -100), 127);
      const float scale = __uint_as_float(static_cast<uint32_t>(127 + 14 - exponent) << 23);
      if (unit == 0 && lane == 0) factors[token] = __uint_as_float(static_cast<uint32_t>(127 - 14 + exponent) << 23);
      const float taken = !U::kWide && odd ? scale * 0.0625f : scale;
      uint32_t* to = words(token, unit, lane);
      float sum = 0;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const float2 two = unpack2<__nv_bfloat16>(to[4 * t]);
        const __half2 halves = __floats2half2_rn(two.x * taken, two.y * taken);
        to[4 * t] = *reinterpret_cast<const uint32_t*>(&halves);
        sum += two.x * scale + two.y * scale;
      }
      float start = -sum * (U::kStoredZero + (!U::kWide && odd ? 64.f : 1024.f));
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
  }
};

}  // namespace millrace
