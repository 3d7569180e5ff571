// Element access in any plain format, and block reductions, for the simple kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/number_range.cuh"
#include "tensor/matrix.h"

namespace millrace {

__device__ inline float load(const std::byte* data, DType dtype, int64_t i) {
  if (dtype == DType::F32) return reinterpret_cast<const float*>(data)[i];
  if (dtype == DType::BF16) return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(data)[i]);
  return __half2float(reinterpret_cast<const __half*>(data)[i]);
}

// f16 saturates: activations beyond its range stay finite.
__device__ inline void store(std::byte* data, DType dtype, int64_t i, float value) {
  if (dtype == DType::F32) {
    reinterpret_cast<float*>(data)[i] = value;
  } else if (dtype == DType::BF16) {
    reinterpret_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
  } else {
    reinterpret_cast<__half*>(data)[i] = __float2half_rn(within_half(value));
  }
}

// A matrix as a kernel argument.
struct GpuMatrix {
  std::byte* data = nullptr;
  DType dtype = DType::F32;
  int64_t rows = 0, cols = 0, stride = 0;

  GpuMatrix() = default;
  GpuMatrix(const Matrix& m) : data(m.data), dtype(m.dtype), rows(m.rows), cols(m.cols), stride(m.stride) {}
  __device__ float get(int64_t row, int64_t col) const { return load(data, dtype, row * stride + col); }
  __device__ void set(int64_t row, int64_t col, float value) const { store(data, dtype, row * stride + col, value); }
};

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

struct Add {
  static constexpr float kNothing = 0;
  static __device__ float warp(float x) { return warp_sum(x); }
};
struct Largest {
  static constexpr float kNothing = -3.4e38f;
  static __device__ float warp(float x) { return warp_max(x); }
};

// Reduces over all threads of the block (a multiple of 32, at most 1024); every thread gets the result.
template <class Reduce>
__device__ float block_reduce(float x) {
  __shared__ float parts[32];
  x = Reduce::warp(x);
  __syncthreads();  // the previous call's result may still be in use
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : Reduce::kNothing;
  return Reduce::warp(x);
}

}  // namespace millrace
