// Device code that all ops share: number formats and programmatic dependent launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/number_range.cuh"

namespace millrace {

// Lets the next kernel of the stream start early. No effect unless that kernel is launched programmatically.
__device__ inline void allow_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the preceding kernels are complete and their writes are visible. Each kernel that can be launched
// programmatically must call it: otherwise its successors could start before its predecessors end.
__device__ inline void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class T>
__device__ inline float to_float(T x);
template <>
__device__ inline float to_float(float x) {
  return x;
}
template <>
__device__ inline float to_float(__half x) {
  return __half2float(x);
}
template <>
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float(float x) {
  return x;
}
template <>
__device__ inline __half from_float(float x) {
  return __float2half_rn(within_half(x));
}
template <>
__device__ inline __nv_bfloat16 from_float(float x) {
  return __float2bfloat16_rn(x);
}

// Packs two numbers into one register, `a` in the low half.
template <class T>
__device__ inline uint32_t pack(float a, float b);
template <>
__device__ inline uint32_t pack<__half>(float a, float b) {
  const __half2 v = __floats2half2_rn(a, b);
  return reinterpret_cast<const uint32_t&>(v);
}
template <>
__device__ inline uint32_t pack<__nv_bfloat16>(float a, float b) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return reinterpret_cast<const uint32_t&>(v);
}

// N consecutive elements, loaded or stored by one instruction. N * sizeof(T) is at most 16 and divides the address.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

// Host: calls f(T{}) with the C++ type of a plain dtype.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::F16:
      return f(__half{});
    case DType::BF16:
      return f(__nv_bfloat16{});
    default:
      return f(float{});
  }
}

// Device: calls f(T{}) with the C++ type of a plain dtype.
template <class F>
__device__ auto with_device_type(DType dtype, F f) {
  switch (dtype) {
    case DType::F16:
      return f(__half{});
    case DType::BF16:
      return f(__nv_bfloat16{});
    default:
      return f(float{});
  }
}

// `cluster`: blocks per cluster; more than one needs compute capability 9.0.
template <class Params>
CudaError launch_kernel(void (*kernel)(Params), dim3 grid, int threads, size_t shared_bytes, const CudaLaunch& launch,
                        const Params& params, int cluster = 1) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (launch.programmatic) {
    // Kernels overlap only if they agree on the split between L1 cache and shared memory: request the maximum of shared
    // memory.
    const cudaError_t split =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (split != cudaSuccess) return split;
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launch.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace millrace
