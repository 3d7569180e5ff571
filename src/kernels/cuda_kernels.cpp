#include "kernels/cuda_lists.h"

namespace millrace {

const KernelSet& cuda_kernels() {
  static const KernelSet set = [] {
    KernelSet all;
    all.layouts = cuda_linear_layouts();
    all.linear = cuda_linear_kernel_list();
    all.attention = cuda_attention_kernels();
    all.norm = cuda_norm_kernels();
    all.rope_angles = cuda_rope_angles_kernels();
    all.rope_write = cuda_rope_write_kernels();
    all.activation = cuda_activation_kernels();
    all.embedding = cuda_embedding_kernels();
    all.elementwise = cuda_elementwise_kernels();
    all.argmax = cuda_argmax_kernels();
    all.sample = cuda_sample_kernels();
    all.score_range = cuda_score_range_kernels();
    return all;
  }();
  return set;
}

}  // namespace millrace
