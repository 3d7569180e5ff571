#include "kernels/linear/cuda/quantized/flat.cuh"

namespace millrace {
MILLRACE_FLAT_INSTANCE(, Q8_0)
}  // namespace millrace
