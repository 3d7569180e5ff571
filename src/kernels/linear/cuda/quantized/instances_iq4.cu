#include "kernels/linear/cuda/quantized/instances.cuh"

namespace millrace {
MILLRACE_PACKED_INSTANCES(IQ4_NL)
MILLRACE_PACKED_INSTANCES(IQ4_XS)
}  // namespace millrace
