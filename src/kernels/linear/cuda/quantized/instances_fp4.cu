#include "kernels/linear/cuda/quantized/instances.cuh"

namespace millrace {
MILLRACE_PACKED_INSTANCES(MXFP4)
}  // namespace millrace
