// Correctness of the linear kernels, see linear_check.cu.
#pragma once

#include "kernels/linear/cuda/launch.h"

namespace millrace {

int check_linear(const CudaLimits& limits, uint64_t seed);  // the number of failures

}  // namespace millrace
