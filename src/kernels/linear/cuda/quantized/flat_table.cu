#include "kernels/linear/cuda/quantized/flat.cuh"

namespace millrace {
MILLRACE_FLAT_INSTANCE(, IQ4_NL)
MILLRACE_FLAT_INSTANCE(, IQ4_XS)
MILLRACE_FLAT_INSTANCE(, MXFP4)
}  // namespace millrace
