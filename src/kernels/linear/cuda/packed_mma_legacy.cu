#include "kernels/linear/cuda/packed_bulk.cuh"

namespace millrace {

template cudaError_t launch_packed<DType::Q4_0>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::Q4_0>(BulkParams, LaunchShape, const CudaStep&, int, int);
template cudaError_t launch_packed<DType::Q4_1>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::Q4_1>(BulkParams, LaunchShape, const CudaStep&, int, int);
template cudaError_t launch_packed<DType::Q8_0>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::Q8_0>(BulkParams, LaunchShape, const CudaStep&, int, int);

}  // namespace millrace
