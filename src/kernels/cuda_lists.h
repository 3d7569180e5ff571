// The GPU's kernels of each op, best first.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

std::vector<const LinearLayout*> cuda_linear_layouts();
KernelList<LinearOp> cuda_linear_kernel_list();
KernelList<AttentionOp> cuda_attention_kernels();
KernelList<NormOp> cuda_norm_kernels();
KernelList<RopeAnglesOp> cuda_rope_angles_kernels();
KernelList<RopeWriteOp> cuda_rope_write_kernels();
KernelList<ActivationOp> cuda_activation_kernels();
KernelList<EmbeddingOp> cuda_embedding_kernels();
KernelList<ElementwiseOp> cuda_elementwise_kernels();
KernelList<ArgmaxOp> cuda_argmax_kernels();
KernelList<SampleOp> cuda_sample_kernels();
KernelList<ScoreRangeOp> cuda_score_range_kernels();

// The faster ones, for what they can take.
const Kernel<RopeWriteOp>* cuda_rope_write();
const Kernel<EmbeddingOp>* cuda_gather();

}  // namespace millrace
