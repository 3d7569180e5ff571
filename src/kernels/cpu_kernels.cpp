#include "kernels/cpu_lists.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/cpu_linear.h"

namespace millrace {

const KernelSet& cpu_kernels() {
  static const KernelSet set = [] {
    KernelSet all;
    all.layouts = cpu_linear_layouts();
    all.linear = cpu_linear_kernels();
    all.attention = cpu_attention_kernels();
    all.norm = cpu_norm_kernels();
    all.rope_angles = cpu_rope_angles_kernels();
    all.rope = cpu_rope_kernels();
    all.activation = cpu_activation_kernels();
    all.embedding = cpu_embedding_kernels();
    all.elementwise = cpu_elementwise_kernels();
    all.kv_write = cpu_kv_write_kernels();
    all.rope_write = cpu_rope_write_kernels();
    all.argmax = cpu_argmax_kernels();
    all.sample = cpu_sample_kernels();
    all.score_range = cpu_score_range_kernels();
    return all;
  }();
  return set;
}

}  // namespace millrace
