// Host side of the grouped kernels for quantized weights of prompts.
#include "kernels/grouped_linear/cuda/packed_prompt.cuh"

#include "hardware/cuda/check.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/sum_pairs.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_PACKED_PROMPT(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

class PackedPrompt final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "cuda_packed_prompt"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && hardware.architecture == 90 && is_packed_grouped(p) && p.groups <= kPromptMostGroups;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double row_bytes = double(packed_linear_bytes(format_of_units(p.format), p.n, p.k)) / double(p.n);
    return tiles_us(p, hardware, {kPromptPairs, 0.7, 0.6}, row_bytes, double(product_bytes(p)));
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return products_workspace(p); }

  void run(const Args& a, const Executor& executor) const override {
    PromptParams params{grouped_params(a), 0};
    if (params.p.pairs == 0) return;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Matrix products = products_of(a, executor.workspace);
    if (a.sum) params.p.y = products;
    params.row_blocks = prompt_row_blocks(params.p);
    const int blocks = prompt_blocks(params, *executor.hardware);
    check_cuda(
        with_packed_format(format_of_units(a.weights->format),
                           [&](auto format) { return launch_packed_prompt<format.value>(params, blocks, step); }),
        "starting a grouped linear layer");
    if (a.sum) check_cuda(add_pairs(products, a.routing, a.y, step), "adding up experts");
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_packed_prompt() {
  static const PackedPrompt kernel;
  return &kernel;
}

}  // namespace millrace
