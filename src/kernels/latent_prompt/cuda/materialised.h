// Materialised latent attention on Hopper.
#pragma once

#include <cstddef>

#include "kernels/latent_prompt/latent_prompt.h"

namespace millrace {

// Weights and latent rows are brought into plain matrices, cuBLASLt expands rows to keys and values of each head, and
// warpgroup products attend to these. `budget`: bytes of expanded rows at a time.
class CudaMaterialised final : public Kernel<LatentPromptOp> {
 public:
  static constexpr size_t kUsualBudget = size_t{256} << 20;

  explicit CudaMaterialised(size_t budget) : budget_(budget) {}
  std::string_view name() const override { return "cuda_materialised"; }
  bool can_run(const Problem& problem, const Hardware& hardware) const override;
  double estimate_us(const Problem& problem, const Hardware& hardware) const override;
  size_t workspace_bytes(const Problem& problem, const Hardware& hardware) const override;
  void run(const Args& args, const Executor& executor) const override;

 private:
  size_t budget_;
};

}  // namespace millrace
