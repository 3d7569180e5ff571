// A weight matrix is held once: which layout, for the mix of batch sizes to come?
#pragma once

#include "dataflow/planner.h"

namespace millrace {

// The layout whose best kernels take the least time over a mix of decode and prefill. Under Precision::Exact or with a
// forced kernel only layouts that have a kernel for it count. `x`: the type of the activations.
const LinearLayout& choose_layout(DType format, int64_t n, int64_t k, Precision precision, const KernelSet& kernels,
                                  const Planner<LinearOp>& planner, DType x = DType::F32);

}  // namespace millrace
