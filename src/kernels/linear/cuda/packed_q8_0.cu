#include "kernels/linear/cuda/packed_instances.cuh"

namespace millrace {
MILLRACE_PACKED_INSTANCES(, Q8_0)
}  // namespace millrace
