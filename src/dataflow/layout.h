// Chooses the layout of a weight matrix. A matrix is stored once and serves all batch sizes.
#pragma once

#include "dataflow/planner.h"

namespace millrace {

// The layout whose best kernels take the least time over a mix of decode and prefill. With Precision::Exact or a forced
// kernel, only layouts with a matching kernel count. `x`: type of the activations.
const LinearLayout& choose_layout(DType format, int64_t n, int64_t k, Precision precision, const KernelSet& kernels,
                                  const Planner<LinearOp>& planner, DType x = DType::F32);

// The same for the matrices of a mixture; null: no kernel of this device runs them. `problem` leaves layout and rows
// open.
const LinearLayout* choose_layout(GroupedLinearProblem problem, const KernelSet& kernels,
                                  const Planner<GroupedLinearOp>& planner);
// The same among layouts that kernels read from the mapped file.
const LinearLayout* choose_layout_in_place(GroupedLinearProblem problem, const KernelSet& kernels,
                                           const Planner<GroupedLinearOp>& planner);

}  // namespace millrace
