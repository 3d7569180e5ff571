// The flat kernel for quantized weights and 5 to 64 tokens.
#pragma once

#include "kernels/linear/cuda/launch.h"

namespace millrace {

inline constexpr int kFlatLeastTokens = 5, kFlatMostTokens = 64;  // fewer: few.cuh is faster in models

const CudaLinearKernel& packed_flat_kernel();

}  // namespace millrace
