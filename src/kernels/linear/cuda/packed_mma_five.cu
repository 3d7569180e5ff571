#include "kernels/linear/cuda/packed_bulk.cuh"

namespace millrace {

template cudaError_t launch_packed<DType::Q5_0>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::Q5_0>(BulkParams, LaunchShape, const CudaStep&, int, int);
template cudaError_t launch_packed<DType::Q5_1>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::Q5_1>(BulkParams, LaunchShape, const CudaStep&, int, int);
template cudaError_t launch_packed<DType::Q5_K>(const PackedParams&, const LaunchShape&, const CudaStep&, int);
template cudaError_t launch_bulk<DType::Q5_K>(BulkParams, LaunchShape, const CudaStep&, int, int);

}  // namespace millrace
