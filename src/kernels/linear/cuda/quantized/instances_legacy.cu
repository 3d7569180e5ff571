#include "kernels/linear/cuda/quantized/instances.cuh"

namespace millrace {
MILLRACE_PACKED_INSTANCES(Q4_0)
MILLRACE_PACKED_INSTANCES(Q4_1)
MILLRACE_PACKED_INSTANCES(Q8_0)
}  // namespace millrace
