// The file's own rows, read in place, and the kernels that read them: f32 arithmetic, for conformance and for plain
// formats.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

const LinearLayout& rows_layout();

const LinearKernel* reference_linear();      // scalar, every format, sums in double
KernelList<LinearOp> rows_linear_kernels();  // SIMD, best first, without the reference

}  // namespace millrace
