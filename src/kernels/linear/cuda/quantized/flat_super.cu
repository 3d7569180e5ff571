#include "kernels/linear/cuda/quantized/flat.cuh"

namespace millrace {
MILLRACE_FLAT_INSTANCE(, Q4_K)
MILLRACE_FLAT_INSTANCE(, Q6_K)
}  // namespace millrace
