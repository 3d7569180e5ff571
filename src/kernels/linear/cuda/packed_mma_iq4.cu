#include "kernels/linear/cuda/packed_bulk.cuh"

namespace millrace {

template cudaError_t launch_packed<DType::IQ4_NL>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::IQ4_NL>(BulkParams, LaunchShape, const CudaStep&, int, int);
template cudaError_t launch_packed<DType::IQ4_XS>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::IQ4_XS>(BulkParams, LaunchShape, const CudaStep&, int, int);

}  // namespace millrace
