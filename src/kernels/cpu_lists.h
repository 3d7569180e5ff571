// The CPU's kernels of each op but linear, best first, and the references that all of them are held to.
#pragma once

#include "kernels/kernel_set.h"

namespace millrace {

KernelList<AttentionOp> cpu_attention_kernels();
KernelList<NormOp> cpu_norm_kernels();
KernelList<RopeAnglesOp> cpu_rope_angles_kernels();
KernelList<RopeOp> cpu_rope_kernels();
KernelList<ActivationOp> cpu_activation_kernels();
KernelList<EmbeddingOp> cpu_embedding_kernels();
KernelList<ElementwiseOp> cpu_elementwise_kernels();
KernelList<KvWriteOp> cpu_kv_write_kernels();
KernelList<RopeWriteOp> cpu_rope_write_kernels();
KernelList<ArgmaxOp> cpu_argmax_kernels();
KernelList<SampleOp> cpu_sample_kernels();
KernelList<ScoreRangeOp> cpu_score_range_kernels();

const Kernel<AttentionOp>* reference_attention();
const Kernel<NormOp>* reference_norm();
const Kernel<RopeOp>* reference_rope();
const Kernel<ActivationOp>* reference_activation();
const Kernel<EmbeddingOp>* reference_embedding();
const Kernel<ElementwiseOp>* reference_elementwise();
const Kernel<KvWriteOp>* reference_kv_write();
const Kernel<ArgmaxOp>* reference_argmax();

// The best of a list on this machine, for kernels that do the work of another op along with their own.
template <class Op>
const Kernel<Op>& first_that_runs(const KernelList<Op>& kernels, const typename Op::Problem& problem,
                                  const Hardware& hardware) {
  for (const auto* kernel : kernels) {
    if (kernel->can_run(problem, hardware)) return *kernel;
  }
  return *kernels.back();  // the reference runs everything
}

}  // namespace millrace
