// Types that all CUDA launches share. Includes no CUDA header: a stream is an opaque pointer, an error is an integer.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

struct CUstream_st;

namespace millrace {

using CudaStream = CUstream_st*;
using CudaError = int;  // cudaError_t; 0 is success

// Stream and mode of a launch. A programmatic launch may start while its predecessor runs; the kernel waits
// (griddepcontrol.wait) before it touches data that other kernels write. Needs compute capability 9.0; ignored below.
struct CudaLaunch {
  CudaStream stream = nullptr;
  bool programmatic = false;
};

// A matrix in device memory: F32, F16 or BF16. A view of some columns keeps the stride of the whole matrix.
struct CudaMatrix {
  void* data = nullptr;
  DType dtype = DType::BF16;
  int64_t stride = 0;  // elements between rows
};

}  // namespace millrace
