#include <algorithm>

#include "kernels/attention/cuda/not_finite.h"

namespace millrace {
namespace {

constexpr int kThreads = 256, kBlocks = 1056;

// Tests for all exponent bits set: infinity or NaN. Compares 16 bits at a time: two numbers, or the upper half of a
// float.
template <uint32_t exponents>
__device__ bool has_none(uint4 four) {
  const auto found = [](uint32_t word) { return __vcmpeq2(word & exponents, exponents); };
  return (found(four.x) | found(four.y) | found(four.z) | found(four.w)) != 0;
}
__device__ bool has_no_float(uint4 four) {
  constexpr uint32_t kExponent = 0x7f800000;
  const auto found = [](uint32_t word) { return (word & kExponent) == kExponent; };
  return found(four.x) || found(four.y) || found(four.z) || found(four.w);
}

template <uint32_t exponents>
__global__ void __launch_bounds__(kThreads) find_not_finite(AttentionResults r, int32_t* flag) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, step = int64_t{gridDim.x} * kThreads;
  bool found = false;
  const auto* sums = reinterpret_cast<const uint4*>(r.log_sums);
  for (int64_t i = first; i < r.sums / 4; i += step) found |= has_no_float(sums[i]);
  const auto* out = static_cast<const uint16_t*>(r.out.data);
  const int64_t eights = r.cols / 8;
  for (int64_t i = first; i < r.rows * eights; i += step) {
    found |= has_none<exponents>(*reinterpret_cast<const uint4*>(out + i / eights * r.out.stride + i % eights * 8));
  }
  if (found) *flag = 1;
}

}  // namespace

CudaError launch_not_finite(const AttentionResults& results, int32_t* flag, CudaStream stream) {
  const cudaError_t cleared = cudaMemsetAsync(flag, 0, sizeof *flag, stream);
  if (cleared != cudaSuccess) return cleared;
  using Kernel = void (*)(AttentionResults, int32_t*);
  const Kernel kernel = results.out.dtype == DType::F16 ? find_not_finite<0x7c007c00> : find_not_finite<0x7f807f80>;
  kernel<<<kBlocks, kThreads, 0, stream>>>(results, flag);
  return cudaGetLastError();
}

}  // namespace millrace
