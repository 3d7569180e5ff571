// Driver API functions, looked up at run time, so that the program also starts without a driver.
#pragma once

#include <cuda_runtime_api.h>

namespace millrace {

// `version` is the CUDA version of the wanted signature, 12000 for 12.0. Null: the driver has no such function.
inline void* driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  return status == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
}

}  // namespace millrace
