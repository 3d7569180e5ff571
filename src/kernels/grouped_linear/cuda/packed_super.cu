#include "kernels/grouped_linear/cuda/packed.cuh"

namespace millrace {

MILLRACE_GROUPED_INSTANCES(, Q4_K)
MILLRACE_GROUPED_INSTANCES(, Q5_K)
MILLRACE_GROUPED_INSTANCES(, Q6_K)

}  // namespace millrace
