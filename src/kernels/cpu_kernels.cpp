#include "kernels/cpu_lists.h"
#include "kernels/kernel_set.h"

namespace millrace {

const KernelSet& cpu_kernels() {
  static const KernelSet set = [] {
    KernelSet all;
    all.attention = cpu_attention_kernels();
    all.norm = cpu_norm_kernels();
    all.rope = cpu_rope_kernels();
    all.activation = cpu_activation_kernels();
    all.embedding = cpu_embedding_kernels();
    all.elementwise = cpu_elementwise_kernels();
    all.kv_write = cpu_kv_write_kernels();
    return all;
  }();
  return set;
}

}  // namespace millrace
