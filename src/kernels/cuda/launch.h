// What every launch on a CUDA device shares. No CUDA header: a stream is an opaque pointer, an error is a number.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

struct CUstream_st;

namespace millrace {

using CudaStream = CUstream_st*;
using CudaError = int;  // cudaError_t; 0 is success

// How a kernel is put into its stream. A programmatic launch may start while the kernel before it is still running: it
// waits (griddepcontrol.wait) before it touches what others write. Needs compute capability 9.0; ignored below.
struct CudaLaunch {
  CudaStream stream = nullptr;
  bool programmatic = false;
};

// A matrix in device memory: F32, F16 or BF16. A view of some columns has the stride of the whole.
struct CudaMatrix {
  void* data = nullptr;
  DType dtype = DType::BF16;
  int64_t stride = 0;  // elements from one row to the next
};

}  // namespace millrace
