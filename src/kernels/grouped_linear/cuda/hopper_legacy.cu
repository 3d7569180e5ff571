#include "kernels/grouped_linear/cuda/packed_flat.cuh"
#include "kernels/grouped_linear/cuda/packed_pairs.cuh"
#include "kernels/grouped_linear/cuda/packed_stream.cuh"

namespace millrace {

MILLRACE_GROUPED_FLAT(, Q4_0)
MILLRACE_GROUPED_PAIRS(, Q4_0)
MILLRACE_GROUPED_STREAM(, Q4_0)
MILLRACE_GROUPED_FLAT(, Q4_1)
MILLRACE_GROUPED_PAIRS(, Q4_1)
MILLRACE_GROUPED_STREAM(, Q4_1)
MILLRACE_GROUPED_FLAT(, Q8_0)
MILLRACE_GROUPED_PAIRS(, Q8_0)
MILLRACE_GROUPED_STREAM(, Q8_0)

}  // namespace millrace
