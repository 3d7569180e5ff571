#include "kernels/linear/cuda/packed_mma.cuh"

namespace millrace {

template cudaError_t launch_packed<DType::IQ4_NL>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_packed<DType::IQ4_XS>(const PackedParams&, const LaunchShape&, const CudaStep&, int);

}  // namespace millrace
