// The families of attention kernels that a GPU's list is made of.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

const AttentionKernel* cuda_simple_attention();
// In front of the best of our kernels for prompts, where the library is there.
const AttentionKernel* cuda_cudnn_attention(const KernelList<AttentionOp>& prompts);

}  // namespace millrace
