// Functions of the driver, asked for at run time, so that the program starts where there is no driver.
#pragma once

#include <cuda_runtime_api.h>

namespace millrace {

// As it was from that version of CUDA on, 12000 for 12.0; null: the driver has none of that name.
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
