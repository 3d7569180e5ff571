// Correctness of the linear kernels, see linear_check.cu.
#pragma once

#include <string>
#include <vector>

#include "kernels/linear/cuda/launch.h"

namespace millrace {

struct KernelFilter {  // how the names of kernels begin
  std::string only, skip;
  bool wants(const CudaLinearKernel& kernel) const {
    return kernel.name.starts_with(only) && (skip.empty() || !kernel.name.starts_with(skip));
  }
};

std::vector<CudaLinearKernel> kernels_to_measure();

int check_linear(const CudaLimits& limits, const KernelFilter& filter, uint64_t seed);  // the number of failures

}  // namespace millrace
