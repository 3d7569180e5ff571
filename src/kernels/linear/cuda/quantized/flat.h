// The flat kernel for quantized weights and 9 to 64 tokens.
#pragma once

#include "kernels/linear/cuda/launch.h"

namespace millrace {

const CudaLinearKernel& packed_flat_kernel();

}  // namespace millrace
