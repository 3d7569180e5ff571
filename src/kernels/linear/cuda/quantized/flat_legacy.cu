#include "kernels/linear/cuda/quantized/flat.cuh"

namespace millrace {
MILLRACE_FLAT_INSTANCE(, Q4_0)
MILLRACE_FLAT_INSTANCE(, Q4_1)
}  // namespace millrace
