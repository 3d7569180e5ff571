#include "kernels/grouped_linear/cuda/packed_prompt.cuh"

namespace millrace {

MILLRACE_PACKED_PROMPT(, Q5_0)
MILLRACE_PACKED_PROMPT(, Q5_1)

}  // namespace millrace
