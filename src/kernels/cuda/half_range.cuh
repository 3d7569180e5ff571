// The range of f16: what is beyond it stays a number, the largest there is; what is no number stays none.
#pragma once

namespace millrace {

__device__ __forceinline__ float within_half(float x) {
  constexpr float kLargest = 65504;
  return x != x ? x : fminf(fmaxf(x, -kLargest), kLargest);
}

}  // namespace millrace
