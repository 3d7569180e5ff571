#include "kernels/grouped_linear/cuda/packed_flat.cuh"
#include "kernels/grouped_linear/cuda/packed_pairs.cuh"
#include "kernels/grouped_linear/cuda/packed_stream.cuh"

namespace millrace {

MILLRACE_GROUPED_FLAT(, Q4_K)
MILLRACE_GROUPED_PAIRS(, Q4_K)
MILLRACE_GROUPED_STREAM(, Q4_K)
MILLRACE_GROUPED_FLAT(, Q5_K)
MILLRACE_GROUPED_PAIRS(, Q5_K)
MILLRACE_GROUPED_STREAM(, Q5_K)
MILLRACE_GROUPED_FLAT(, Q6_K)
MILLRACE_GROUPED_PAIRS(, Q6_K)
MILLRACE_GROUPED_STREAM(, Q6_K)

}  // namespace millrace
