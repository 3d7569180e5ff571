// Saturation: values beyond the range of a format become its largest finite number.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tensor/dtype.h"
#include "tensor/half.h"

namespace millrace {

template <class T>
inline constexpr float kLargestNumber = 0x1.fffffep127f;
template <>
inline constexpr float kLargestNumber<__half> = kLargestF16;
template <>
inline constexpr float kLargestNumber<__nv_bfloat16> = kLargestBf16;

// Keeps NaN.
__device__ __forceinline__ float within_half(float x) {
  constexpr float kLargest = kLargestNumber<__half>;
  return x != x ? x : fminf(fmaxf(x, -kLargest), kLargest);
}

// Maps NaN to zero: the KV cache must hold finite numbers (kv_write.h).
template <class T>
__device__ __forceinline__ float as_number(float x) {
  constexpr float kLargest = kLargestNumber<T>;
  return x != x ? 0.0f : fminf(fmaxf(x, -kLargest), kLargest);
}
__device__ __forceinline__ float as_number(float x, DType kept_as) {
  return kept_as == DType::F16    ? as_number<__half>(x)
         : kept_as == DType::BF16 ? as_number<__nv_bfloat16>(x)
                                  : as_number<float>(x);
}

}  // namespace millrace
