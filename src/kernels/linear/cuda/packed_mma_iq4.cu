#include "kernels/linear/cuda/packed_instances.cuh"

namespace millrace {
MILLRACE_PACKED_INSTANCES(, IQ4_NL)
MILLRACE_PACKED_INSTANCES(, IQ4_XS)
}  // namespace millrace
