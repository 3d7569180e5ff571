// F32 weights as a sum of three numbers of 16 bits: tensor cores multiply these and add in f32, so three products give
// what f32 units would, in a quarter of the time. Three bf16 numbers hold all 24 bits. Three f16 numbers hold them down
// to 2^-25, and weights beyond the range of f16 saturate, as activations do.
#include "kernels/cuda/vectors.cuh"
#include "kernels/linear/cuda/file_rows.h"

namespace millrace {
namespace {

constexpr int kThreads = 256;

// to: [parts][count]. Numbers that have no remainder in bf16, infinite ones among them, have zeros in the other parts.
template <class T>
__global__ void __launch_bounds__(kThreads) split(const float* weights, int64_t count, T* to) {
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (first >= count) return;
  Eight rest = widen(weights + first);
#pragma unroll
  for (int part = 0; part < kPartsOfF32; ++part) {
    narrow(to + part * count + first, rest);
#pragma unroll
    for (float& x : rest.at) {
      const float rounded = to_float(from_float<T>(x));
      x = isfinite(rounded) ? x - rounded : 0;
    }
  }
}

}  // namespace

void cuda_split(const float* from, int64_t count, DType dtype, void* to, void* queue) {
  const auto blocks = static_cast<unsigned>((count + kThreads * 8 - 1) / (kThreads * 8));
  const auto stream = static_cast<cudaStream_t>(queue);
  if (dtype == DType::BF16) {
    split<<<blocks, kThreads, 0, stream>>>(from, count, static_cast<__nv_bfloat16*>(to));
  } else {
    split<<<blocks, kThreads, 0, stream>>>(from, count, static_cast<__half*>(to));
  }
}

}  // namespace millrace
