// The kernels of one quantized format. Several files instantiate the formats, so that they compile in parallel.
#pragma once

#include "kernels/linear/cuda/quantized/few.cuh"
#include "kernels/linear/cuda/quantized/gemv.cuh"
#include "kernels/linear/cuda/quantized/mma.cuh"
#include "kernels/linear/cuda/quantized/wgmma.cuh"

// KIND is `extern` in files that only launch.
#define MILLRACE_PACKED_INSTANCES(KIND, F)                                                                            \
  KIND template cudaError_t launch_packed<DType::F>(const PackedParams&, const LaunchShape&, const CudaStep&, int);   \
  KIND template cudaError_t launch_gemv<DType::F>(const PackedGemvParams&, const LaunchShape&, const CudaStep&, int); \
  KIND template cudaError_t launch_few<DType::F>(const PackedFewParams&, const CudaStep&, int, int);                  \
  KIND template cudaError_t launch_wgmma<DType::F>(const PackedWgmmaParams&, const CUtensorMap&, const LaunchShape&,  \
                                                   const CudaStep&, int, int);
