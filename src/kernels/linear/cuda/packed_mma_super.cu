#include "kernels/linear/cuda/packed_mma.cuh"

namespace millrace {

template cudaError_t launch_packed<DType::Q4_K>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_packed<DType::Q6_K>(const PackedParams&, const LaunchShape&, const CudaStep&, int);

}  // namespace millrace
