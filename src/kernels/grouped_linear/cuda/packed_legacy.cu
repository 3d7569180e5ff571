#include "kernels/grouped_linear/cuda/packed.cuh"

namespace millrace {

MILLRACE_GROUPED_INSTANCES(, Q4_0)
MILLRACE_GROUPED_INSTANCES(, Q4_1)
MILLRACE_GROUPED_INSTANCES(, Q8_0)

}  // namespace millrace
