// The CPU's linear layouts and kernels, best first.
#pragma once

#include <vector>

#include "kernels/kernel_set.h"

namespace millrace {

std::vector<const LinearLayout*> cpu_linear_layouts();
KernelList<LinearOp> cpu_linear_kernels();

}  // namespace millrace
