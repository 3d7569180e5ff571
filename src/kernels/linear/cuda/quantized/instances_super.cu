#include "kernels/linear/cuda/quantized/instances.cuh"

namespace millrace {
MILLRACE_PACKED_INSTANCES(Q4_K)
MILLRACE_PACKED_INSTANCES(Q6_K)
}  // namespace millrace
