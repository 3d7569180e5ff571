// Running sums of query rows in tensor-core layout, and search by a running count. Shared by decode and prefill.
#pragma once

#include "kernels/attention/cuda/launch.h"
#include "kernels/attention/cuda/mma.cuh"

namespace millrace {

// Lane 4 g + t of a warp: index 0 is row g, index 1 is row g + 8, columns 8 n + 2 t and 8 n + 2 t + 1.
template <int kDim>
struct RowSums {
  float largest[2], total[2];  // total: of this lane's columns only, until the lanes are added up
  float o[kDim / 8][4];

  __device__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) largest[half] = kNoScore, total[half] = 0;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] = 0;
    }
  }
  __device__ void rescale(int half, float to) {
    const float factor = exp2_fast(largest[half] - to);
    largest[half] = to;
    total[half] *= factor;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) o[n][half * 2] *= factor, o[n][half * 2 + 1] *= factor;
  }
};

// Slack added to the largest score when a lazy maximum moves. For bf16 it equals the allowed lag: no weight then
// exceeds one, so sums overflow f32 only where they would with an exact maximum. For f16 it is zero: its weights would
// lose bits, and its values are small.
template <class T>
inline constexpr float kRoom = 0;
template <>
inline constexpr float kRoom<__nv_bfloat16> = kLazySlack;

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// The total of a row and its head's sink, relative to `largest`, which is in log2. Called once per row, by the code
// that divides by the total. If the sink is so far above all scores that its weight is infinite, the result is zero:
// its limit.
__device__ inline float with_sink(const CudaAttentionArgs& args, int64_t head, float total, float largest) {
  return args.sinks == nullptr ? total : total + exp2_fast(args.sinks[head] * kLog2E - largest);
}

// Absolute error near 1e-7, sufficient for a softcap; exact at both infinities.
__device__ inline float tanh_fast(float x) { return 1 - __fdividef(2.0f, 1 + exp2_fast(x * (2 * kLog2E))); }

template <int kCount>
__device__ inline void soften_scores(const CudaAttentionArgs& args, float (&score)[kCount]) {
  const float inside = __fdividef(args.scale, args.softcap), outside = args.softcap * kLog2E;
#pragma unroll
  for (int i = 0; i < kCount; ++i) score[i] = outside * tanh_fast(score[i] * inside);
}

// Turns products of q and k into scores for the softmax: in log2, and always finite.
template <int kCount>
__device__ inline void finish_scores(const CudaAttentionArgs& args, float (&score)[kCount]) {
  if (args.softcap > 0) {
    soften_scores(args, score);
  } else {
    const float factor = args.scale * kLog2E;
#pragma unroll
    for (int i = 0; i < kCount; ++i) score[i] *= factor;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) score[i] = fminf(fmaxf(score[i], -kScoreLimit), kScoreLimit);
}

// Sum of size(i) over i in [0, count). All lanes of a warp must call it; all get the result.
template <class Size>
__device__ int sum_over(int count, Size size) {
  int total = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < count; i += 32) total += size(i);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(~0u, total, step);
  return total;
}

struct Found {
  int sequence, begin;  // begin: running count before `sequence`; sequence = count if the point is beyond all
};
template <class Size>
__device__ Found find_point(int count, int point, Size size) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int first = 0; first < count; first += 32) {
    const int mine = first + lane < count ? size(first + lane) : 0;
    int upto = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, upto, step);
      if (lane >= step) upto += other;
    }
    const unsigned hit = __ballot_sync(~0u, before + upto > point);
    if (hit != 0) {
      const int at = __ffs(static_cast<int>(hit)) - 1;
      return {first + at, before + __shfl_sync(~0u, upto - mine, at)};
    }
    before += __shfl_sync(~0u, upto, 31);
  }
  return {count, before};
}

}  // namespace millrace
