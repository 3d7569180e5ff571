#include "kernels/grouped_linear/cuda/packed_prompt.cuh"

namespace millrace {

MILLRACE_PACKED_PROMPT(, IQ4_NL)
MILLRACE_PACKED_PROMPT(, IQ4_XS)

}  // namespace millrace
