#include "engine/runner_drafter.h"

#include "engine/step_cost.h"

namespace millrace {

LoadOptions RunnerDrafter::options_beside(const Runner& main) {
  LoadOptions load = main.options();
  load.architecture = nullptr;
  load.forced.clear();
  load.adapter_files.clear();
  load.adapters = false;
  load.gpu_memory = load.cpu_memory = 0;
  load.heads.reset();
  load.batch_invariant = false;
  load.logit_rows = load.places();
  load.device_draws = true;  // chains need the likeliest token only
  return load;
}

RunnerDrafter::RunnerDrafter(std::unique_ptr<Runner> runner)
    : runner_(std::move(runner)),
      batch_(runner_->options().rows, runner_->options().places(), runner_->options().logit_rows),
      estimate_(estimate_steps(*runner_, /*drafts=*/false)) {
  chains_.reserve(static_cast<size_t>(runner_->options().places()));
}

void RunnerDrafter::take(std::span<const int32_t> chosen) {
  for (size_t i = 0; i < chains_.size(); ++i) {
    DraftAsk& ask = *chains_[i].ask;
    const int32_t token = token_of(chosen[i]);
    if (token >= 0) ask.draft[static_cast<size_t>(ask.given++)] = token;  // else no logit is a number: the draft ends
  }
}

void RunnerDrafter::extend_chains() {
  for (int32_t pass = 1;; ++pass) {
    std::erase_if(chains_, [&](const Chain& c) { return c.ask->given < pass || pass == std::ssize(c.ask->draft); });
    if (chains_.empty()) return;
    batch_.clear();
    for (Chain& chain : chains_) add_row(chain, pass);
    take(run_rows());
  }
}

}  // namespace millrace
