#include "kernels/grouped_linear/cuda/packed_prompt.cuh"

namespace millrace {

MILLRACE_PACKED_PROMPT(, Q4_0)
MILLRACE_PACKED_PROMPT(, Q4_1)
MILLRACE_PACKED_PROMPT(, Q8_0)

}  // namespace millrace
