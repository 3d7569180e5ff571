// Correctness of the linear kernels, see linear_check.cu.
#pragma once

#include <string>

#include "kernels/linear/cuda/launch.h"

namespace millrace {

struct KernelFilter {  // prefixes of kernel names
  std::string only, skip;
  bool wants(const CudaLinearKernel& kernel) const {
    return kernel.name.starts_with(only) && (skip.empty() || !kernel.name.starts_with(skip));
  }
};

int check_linear(const CudaLimits& limits, const KernelFilter& filter,
                 uint64_t seed);  // returns the number of failures

}  // namespace millrace
