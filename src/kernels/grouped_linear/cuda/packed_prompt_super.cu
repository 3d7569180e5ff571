#include "kernels/grouped_linear/cuda/packed_prompt.cuh"

namespace millrace {

MILLRACE_PACKED_PROMPT(, Q4_K)
MILLRACE_PACKED_PROMPT(, Q5_K)
MILLRACE_PACKED_PROMPT(, Q6_K)

}  // namespace millrace
