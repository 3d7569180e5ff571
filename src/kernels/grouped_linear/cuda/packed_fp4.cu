#include "kernels/grouped_linear/cuda/packed.cuh"

namespace millrace {

MILLRACE_GROUPED_INSTANCES(, MXFP4)
template cudaError_t launch_grouped_packed<DType::MXFP4, 2>(const GroupedPackedParams&, dim3, const CudaStep&);

}  // namespace millrace
