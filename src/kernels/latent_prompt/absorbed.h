// Stands for the absorbed form in the ranking of a device's kernels.
#pragma once

#include <utility>

#include "kernels/latent_prompt/latent_prompt.h"

namespace millrace {

class AbsorbedForm final : public Kernel<LatentPromptOp> {
 public:
  explicit AbsorbedForm(KernelList<AttentionOp> attention) : attention_(std::move(attention)) {}
  std::string_view name() const override { return "absorbed"; }
  bool can_run(const Problem&, const Hardware&) const override { return true; }
  double estimate_us(const Problem& problem, const Hardware& hardware) const override;
  void run(const Args&, const Executor&) const override;

 private:
  const KernelList<AttentionOp> attention_;  // of the device
};

}  // namespace millrace
