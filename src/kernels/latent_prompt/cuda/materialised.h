// Materialised latent attention on Hopper.
#pragma once

#include "kernels/latent_prompt/cuda/cut.h"

namespace millrace {

// Weights and latent rows are brought into plain matrices, cuBLASLt expands rows to keys and values of each head, and
// warpgroup products attend to these.
class CudaMaterialised final : public Kernel<LatentPromptOp> {
 public:
  explicit CudaMaterialised(const LatentCut::Limits& limits) : limits_(limits) {}
  std::string_view name() const override { return "cuda_materialised"; }
  bool can_run(const Problem& problem, const Hardware& hardware) const override;
  double estimate_us(const Problem& problem, const Hardware& hardware) const override;
  size_t workspace_bytes(const Problem& problem, const Hardware& hardware) const override;
  void run(const Args& args, const Executor& executor) const override;

 private:
  LatentCut::Limits limits_;
};

}  // namespace millrace
