// Host side of the grouped kernels for quantized weights of prompts.
#include "kernels/grouped_linear/cuda/packed_prompt.cuh"

#include "kernels/grouped_linear/cuda/prompt_kernel.h"
#include "kernels/linear/cuda/quantized/formats.h"

namespace millrace {

#define MILLRACE_DECLARE(F) MILLRACE_PACKED_PROMPT(extern, F)
MILLRACE_PACKED_FORMATS(MILLRACE_DECLARE)
#undef MILLRACE_DECLARE

namespace {

class PackedPrompt final : public PromptKernel {
 public:
  std::string_view name() const override { return "cuda_packed_prompt"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return suits(p, hardware) && is_packed_grouped(p);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double row_bytes = double(packed_linear_bytes(format_of_units(p.format), p.n, p.k)) / double(p.n);
    return tiles_us(p, hardware, {kPromptPairs, 0.7, 0.6}, row_bytes, double(product_bytes(p)));
  }

 private:
  cudaError_t launch(const GroupedWeights& weights, const PromptParams& params, LaunchShape shape,
                     const CudaStep& step) const override {
    return with_packed_format(format_of_units(weights.format),
                              [&](auto format) { return launch_packed_prompt<format.value>(params, shape, step); });
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_packed_prompt() {
  static const PackedPrompt kernel;
  return &kernel;
}

}  // namespace millrace
