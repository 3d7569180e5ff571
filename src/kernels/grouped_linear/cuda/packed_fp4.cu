#include "kernels/grouped_linear/cuda/packed.cuh"

namespace millrace {

MILLRACE_GROUPED_INSTANCES(, MXFP4)

}  // namespace millrace
