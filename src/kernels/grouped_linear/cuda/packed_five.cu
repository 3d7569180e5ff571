#include "kernels/grouped_linear/cuda/packed.cuh"

namespace millrace {

MILLRACE_GROUPED_INSTANCES(, Q5_0)
MILLRACE_GROUPED_INSTANCES(, Q5_1)

}  // namespace millrace
