#include "kernels/grouped_linear/cuda/packed_prompt.cuh"

namespace millrace {

MILLRACE_PACKED_PROMPT(, MXFP4)

}  // namespace millrace
