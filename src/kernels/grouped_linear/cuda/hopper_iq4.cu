#include "kernels/grouped_linear/cuda/packed_flat.cuh"
#include "kernels/grouped_linear/cuda/packed_pairs.cuh"
#include "kernels/grouped_linear/cuda/packed_stream.cuh"

namespace millrace {

MILLRACE_GROUPED_FLAT(, IQ4_NL)
MILLRACE_GROUPED_PAIRS(, IQ4_NL)
MILLRACE_GROUPED_STREAM(, IQ4_NL)
MILLRACE_GROUPED_FLAT(, IQ4_XS)
MILLRACE_GROUPED_PAIRS(, IQ4_XS)
MILLRACE_GROUPED_STREAM(, IQ4_XS)

}  // namespace millrace
