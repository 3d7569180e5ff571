#include "kernels/linear/cuda/packed_mma.cuh"

namespace millrace {

template cudaError_t launch_packed<DType::Q5_0>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_packed<DType::Q5_1>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_packed<DType::Q5_K>(const PackedParams&, const LaunchShape&, const CudaStep&, int);

}  // namespace millrace
