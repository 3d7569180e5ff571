// The layout of the file's own rows, read in place, and its kernels. They compute in f32, for conformance and for plain
// formats.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

const LinearLayout& rows_layout();

// One kernel per instruction set, best first.
KernelList<LinearOp> plain_linear_kernels();  // F32, F16, BF16: decode and small batches
KernelList<LinearOp> exact_linear_kernels();  // every format, any number of rows

}  // namespace millrace
