// Decode with plain F16 rows on aarch64.
#pragma once

#include "kernels/linear/linear.h"

namespace millrace {

const LinearKernel* fhm_linear();

}  // namespace millrace
