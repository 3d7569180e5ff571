#include "dataflow/tuner.h"

namespace millrace {
namespace {

const LinearLayout& find_layout(const KernelSet& kernels, std::string_view name) {
  for (const auto* layout : kernels.layouts) {
    if (layout->name() == name) return *layout;
  }
  assertion_failed("a layout of this back-end", __FILE__, __LINE__);
}

}  // namespace

Tuner::Tuner(const KernelSet& kernels, Device& device, ThreadPool& pool, PlanCache& plans)
    : kernels_(kernels),
      device_(device),
      pool_(pool),
      plans_(plans),
      linear_(kernels.linear, device.hardware(), nullptr, ""),
      attention_(kernels.attention, device.hardware(), nullptr, ""),
      timer_(device, pool) {}

void Tuner::tune(const std::vector<LinearProblem>& same_weights) {
  const auto& first = same_weights.front();
  ColdWeights weights(first.format, first.n, first.k, find_layout(kernels_, first.layout), device_, pool_);
  for (const auto& problem : same_weights) {
    const auto kernels = worth_measuring(linear_, problem);
    plans_.put(LinearOp::kName, to_string(problem), timer_.time(problem, kernels, weights));
  }
}

void Tuner::tune(const AttentionProblem& problem) {
  const auto kernels = worth_measuring(attention_, problem);
  plans_.put(AttentionOp::kName, to_string(problem), timer_.time(problem, kernels));
}

}  // namespace millrace
