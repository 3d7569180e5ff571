// Converts the types of the dataflow into those of the launches.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

inline CudaMatrix cuda_matrix(const Matrix& m) { return {m.data, m.dtype, m.stride}; }

inline CudaLaunch cuda_launch(const Executor& executor) {
  return {static_cast<CudaStream>(executor.queue), executor.overlap};
}

}  // namespace millrace
