// The file's own rows, read in place, and the kernels that read them: f32 arithmetic, for conformance and for plain
// formats.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

const LinearLayout& rows_layout();

// For each instruction set, best first.
KernelList<LinearOp> plain_linear_kernels();  // F32, F16, BF16: decode and small batches
KernelList<LinearOp> exact_linear_kernels();  // every format, any number of rows

}  // namespace millrace
