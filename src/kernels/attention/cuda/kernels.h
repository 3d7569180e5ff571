// The attention kernels that the GPU's list is made of.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

const AttentionKernel* cuda_simple_attention();
KernelList<AttentionOp> cuda_latent_attention();      // latent rows of the usual sizes in 16 bits
KernelList<AttentionOp> cuda_latent_few_attention();  // the same for few query rows of even sequences, on Hopper
const AttentionKernel* cuda_latent_wide_attention();  // the same for many query rows, on Hopper
// Prompts over KV in 8 bits, by the best of these kernels for f16.
const AttentionKernel* cuda_widened_attention(const KernelList<AttentionOp>& prompts);
// Variants of the best of our prefill kernels; null if cuDNN is not available.
const AttentionKernel* cuda_cudnn_attention(const KernelList<AttentionOp>& prompts);

}  // namespace millrace
