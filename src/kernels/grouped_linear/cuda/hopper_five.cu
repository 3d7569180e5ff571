#include "kernels/grouped_linear/cuda/packed_flat.cuh"
#include "kernels/grouped_linear/cuda/packed_pairs.cuh"
#include "kernels/grouped_linear/cuda/packed_stream.cuh"

namespace millrace {

MILLRACE_GROUPED_FLAT(, Q5_0)
MILLRACE_GROUPED_PAIRS(, Q5_0)
MILLRACE_GROUPED_STREAM(, Q5_0)
MILLRACE_GROUPED_FLAT(, Q5_1)
MILLRACE_GROUPED_PAIRS(, Q5_1)
MILLRACE_GROUPED_STREAM(, Q5_1)

}  // namespace millrace
