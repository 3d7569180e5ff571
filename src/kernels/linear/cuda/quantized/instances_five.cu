#include "kernels/linear/cuda/quantized/instances.cuh"

namespace millrace {
MILLRACE_PACKED_INSTANCES(Q5_0)
MILLRACE_PACKED_INSTANCES(Q5_1)
MILLRACE_PACKED_INSTANCES(Q5_K)
}  // namespace millrace
