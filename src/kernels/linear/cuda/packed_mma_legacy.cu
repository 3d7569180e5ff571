#include "kernels/linear/cuda/packed_mma.cuh"

namespace millrace {

template cudaError_t launch_packed<DType::Q4_0>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_packed<DType::Q4_1>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_packed<DType::Q8_0>(const PackedParams&, const LaunchShape&, const CudaStep&, int);

}  // namespace millrace
