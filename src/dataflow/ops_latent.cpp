// Latent attention of prompt chunks: which form computes a chunk, by its rows and its context.
#include <algorithm>

#include "dataflow/ops.h"

namespace millrace {

// Plans every bucket of chunks within the limits when a dry pass first meets this model's attention.
void Ops::plan_latent_prompts(const LatentPromptOp::Problem& problem) {
  LatentPromptOp::Problem bucket = problem;
  bucket.rows = bucket.context = 1;
  if (planner<LatentPromptOp>().planned(bucket) != nullptr) return;
  for (bucket.rows = 1; bucket.rows < 2 * limits_.rows; bucket.rows *= 2) {
    for (bucket.context = bucket.rows; bucket.context < 2 * limits_.context; bucket.context *= 2) {
      const auto* kernel = planner<LatentPromptOp>().plan(bucket);
      if (kernel == nullptr || LatentPromptOp::is_absorbed(*kernel)) continue;
      workspace_needed_ = std::max(workspace_needed_, kernel->workspace_bytes(bucket, hardware_));
    }
  }
}

// With batch-invariant results a row may not depend on the rows that share its step. Observers of inputs see those of
// the absorbed form. A pass that plans takes the absorbed form, so that steps may run either.
bool Ops::materialises(const LatentPromptOp::Problem& problem) {
  if (kernels_.of<LatentPromptOp>().empty() || options_.batch_invariant || inputs_ != nullptr) return false;
  if (mode_ == Mode::Plan) {
    plan_latent_prompts(problem);
    return false;
  }
  auto& planner = this->planner<LatentPromptOp>();
  const auto* kernel = is_dry() ? planner.plan(problem.bucketed()) : planner.planned(problem.bucketed());
  const bool absorbs = kernel == nullptr || LatentPromptOp::is_absorbed(*kernel);
  if (mode_ == Mode::Explain && absorbs) {
    calls_->push_back(explain_call(planner, problem, LatentPromptOp::Args()));
    calls_->back().on_host = options_.is_host_side;
  }
  return !absorbs;
}

void Ops::latent_prompt(const LatentPromptOp::Problem& problem, const LatentPromptOp::Args& args) {
  launch_pending();
  const auto* kernel = planner<LatentPromptOp>().planned(problem.bucketed());
  MR_ASSERT(kernel != nullptr);  // materialises() found it
  run<LatentPromptOp>(*kernel, problem, args, executor_);
}

}  // namespace millrace
