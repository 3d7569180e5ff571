#include "kernels/linear/cuda/quantized/flat.cuh"

namespace millrace {
MILLRACE_FLAT_INSTANCE(, Q5_0)
MILLRACE_FLAT_INSTANCE(, Q5_1)
MILLRACE_FLAT_INSTANCE(, Q5_K)
}  // namespace millrace
