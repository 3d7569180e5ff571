// Turns CUDA runtime errors into Error.
#pragma once

#include <cuda_runtime_api.h>

namespace millrace {

[[noreturn]] void fail_cuda(cudaError_t status, const char* doing);

inline void check_cuda(cudaError_t status, const char* doing) {
  if (status != cudaSuccess) fail_cuda(status, doing);
}

// cudaMalloc, cudaFree and launches go to the thread's current device, and a thread begins with device 0.
inline void use_cuda_device(int index) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == index) return;
  check_cuda(cudaSetDevice(index), "selecting it");
}

}  // namespace millrace
