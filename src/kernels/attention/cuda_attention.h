// The families of attention kernels that a GPU's list is made of.
#pragma once

#include "kernels/attention/attention.h"

namespace millrace {

const AttentionKernel* cuda_simple_attention();

}  // namespace millrace
