// Everything a back-end can do: one explicit list, best first within each op where estimates tie.
#pragma once

#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/argmax/argmax.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/angles.h"
#include "kernels/rope/rope.h"
#include "kernels/rope_write/rope_write.h"
#include "kernels/sample/sample.h"
#include "kernels/score_range/score_range.h"

namespace millrace {

template <class Op>
using KernelList = std::vector<const Kernel<Op>*>;

struct KernelSet {
  std::vector<const LinearLayout*> layouts;
  KernelList<LinearOp> linear;
  KernelList<AttentionOp> attention;
  KernelList<NormOp> norm;
  KernelList<RopeAnglesOp> rope_angles;
  KernelList<RopeOp> rope;
  KernelList<ActivationOp> activation;
  KernelList<EmbeddingOp> embedding;
  KernelList<ElementwiseOp> elementwise;
  KernelList<KvWriteOp> kv_write;
  KernelList<RopeWriteOp> rope_write;  // may be empty: rope and kv_write do the same
  KernelList<ArgmaxOp> argmax;
  KernelList<SampleOp> sample;
  KernelList<ScoreRangeOp> score_range;
};

const KernelSet& cpu_kernels();
const KernelSet& cuda_kernels();  // empty in a build without CUDA

}  // namespace millrace
