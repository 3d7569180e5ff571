// Host side of the kernels that multiply prompts (prompt.cuh).
#pragma once

#include "hardware/cuda/check.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/prompt.cuh"
#include "kernels/grouped_linear/cuda/sum_pairs.h"

namespace millrace {

class PromptKernel : public Kernel<GroupedLinearOp> {
 public:
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return products_workspace(p); }

  void run(const Args& a, const Executor& executor) const override {
    PromptParams params{grouped_params(a), 0};
    if (params.p.pairs == 0) return;
    const Matrix products = products_of(a, executor.workspace);
    if (a.sum) params.p.y = products;
    params.row_blocks = prompt_row_blocks(params.p);
    const int64_t items = most_tiles(params.p.pairs, params.p.groups, kPromptPairs) * params.row_blocks;
    LaunchShape shape;
    shape.grid = dim3(static_cast<unsigned>(std::min<int64_t>(items, executor.hardware->cores)));
    shape.threads = kPromptThreads;
    shape.most_shared = true;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    check_cuda(launch(*a.weights, params, shape, step), "starting a grouped linear layer");
    if (a.sum) check_cuda(add_pairs(products, a.routing, a.y, step), "adding up experts");
  }

 protected:
  static bool suits(const Problem& p, const Hardware& hardware) {
    return is_gpu(hardware) && hardware.architecture == 90 && p.groups <= kPromptMostGroups;
  }

 private:
  // `shape` lacks the bytes of shared memory.
  virtual cudaError_t launch(const GroupedWeights& weights, const PromptParams& params, LaunchShape shape,
                             const CudaStep& step) const = 0;
};

}  // namespace millrace
