#include "kernels/linear/cuda/packed_instances.cuh"

namespace millrace {
MILLRACE_PACKED_INSTANCES(, Q5_1)
}  // namespace millrace
