#include "kernels/grouped_linear/cuda/packed.cuh"

namespace millrace {

MILLRACE_GROUPED_INSTANCES(, IQ4_NL)
MILLRACE_GROUPED_INSTANCES(, IQ4_XS)

}  // namespace millrace
