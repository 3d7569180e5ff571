// Errors of the CUDA runtime as our own, in one line.
#pragma once

#include <cuda_runtime_api.h>

namespace millrace {

[[noreturn]] void fail_cuda(cudaError_t status, const char* doing);

inline void check_cuda(cudaError_t status, const char* doing) {
  if (status != cudaSuccess) fail_cuda(status, doing);
}

}  // namespace millrace
