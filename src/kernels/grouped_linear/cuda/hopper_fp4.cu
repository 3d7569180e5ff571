#include "kernels/grouped_linear/cuda/packed_flat.cuh"
#include "kernels/grouped_linear/cuda/packed_pairs.cuh"
#include "kernels/grouped_linear/cuda/packed_stream.cuh"

namespace millrace {

MILLRACE_GROUPED_FLAT(, MXFP4)
MILLRACE_GROUPED_PAIRS(, MXFP4)
MILLRACE_GROUPED_STREAM(, MXFP4)

}  // namespace millrace
