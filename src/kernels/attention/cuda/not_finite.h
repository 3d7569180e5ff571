// Whether all that another's attention computed are numbers.
#pragma once

#include "kernels/cuda/launch.h"

namespace millrace {

struct AttentionResults {
  CudaMatrix out;  // F16 or BF16: [rows, cols], rows and columns by eights
  int64_t rows = 0, cols = 0;
  const float* log_sums = nullptr;  // `sums` of them, by fours
  int64_t sums = 0;
};

// *flag becomes 1 where one of them is none, else 0.
CudaError launch_not_finite(const AttentionResults& results, int32_t* flag, CudaStream stream);

}  // namespace millrace
