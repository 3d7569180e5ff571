// The attention kernels that the GPU's list is made of.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

const AttentionKernel* cuda_simple_attention();
// Variants of the best of our prefill kernels; null if cuDNN is not available.
const AttentionKernel* cuda_cudnn_attention(const KernelList<AttentionOp>& prompts);

}  // namespace millrace
