#include "kernels/linear/cuda/packed_bulk.cuh"

namespace millrace {

template cudaError_t launch_packed<DType::Q4_K>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::Q4_K>(BulkParams, LaunchShape, const CudaStep&, int, int);
template cudaError_t launch_packed<DType::Q6_K>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::Q6_K>(BulkParams, LaunchShape, const CudaStep&, int, int);

}  // namespace millrace
