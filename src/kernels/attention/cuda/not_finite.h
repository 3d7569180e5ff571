// Checks that the results of cuDNN's attention are finite.
#pragma once

#include "kernels/cuda/launch.h"

namespace millrace {

struct AttentionResults {
  CudaMatrix out;  // F16 or BF16: [rows, cols], both multiples of eight
  int64_t rows = 0, cols = 0;
  const float* log_sums = nullptr;  // [sums], a multiple of four
  int64_t sums = 0;
};

// Sets *flag to 1 if any result is infinite or NaN, else to 0.
CudaError launch_not_finite(const AttentionResults& results, int32_t* flag, CudaStream stream);

}  // namespace millrace
