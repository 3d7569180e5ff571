// The quantized formats whose bits the packed kernels read directly.
#pragma once

#include <type_traits>

#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/quantized/unit.cuh"

#define MILLRACE_PACKED_FORMATS(X) \
  X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS) X(MXFP4)

namespace millrace {

// Calls `function` with the format as a compile-time constant; returns cudaErrorInvalidValue for other formats.
template <class Function>
cudaError_t with_packed_format(DType format, Function function) {
  switch (format) {
#define MILLRACE_CASE(F) \
  case DType::F:         \
    return function(std::integral_constant<DType, DType::F>{});
    MILLRACE_PACKED_FORMATS(MILLRACE_CASE)
#undef MILLRACE_CASE
    default:
      return cudaErrorInvalidValue;
  }
}

inline bool is_packed(const CudaLinearProblem& p, const CudaLimits& limits) {
  return p.x == DType::BF16 && limits.capability >= 80 && p.k % 32 == 0 &&
         with_packed_format(p.format, [](auto) { return cudaSuccess; }) == cudaSuccess;
}

}  // namespace millrace
