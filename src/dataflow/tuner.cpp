#include "dataflow/tuner.h"

namespace millrace {
namespace {

const LinearLayout& find_layout(const KernelSet& kernels, std::string_view name) {
  for (const auto* layout : kernels.layouts) {
    if (layout->name() == name) return *layout;
  }
  assertion_failed("a layout of this back-end", __FILE__, __LINE__);
}

template <class Op>
std::vector<const Kernel<Op>*> variants_of(const std::string& best, const KernelList<Op>& kernels,
                                           const typename Op::Problem& problem, const Hardware& hardware) {
  std::vector<const Kernel<Op>*> all;
  for (const auto* kernel : kernels) {
    const auto* base = kernel->variant_of(problem, hardware);
    if (base != nullptr && base->name() == best && kernel->can_run(problem, hardware)) all.push_back(kernel);
  }
  return all;
}

}  // namespace

Tuner::Tuner(const KernelSet& kernels, Device& device, ThreadPool& pool, PlanCache& plans, size_t model_bytes)
    : kernels_(kernels),
      device_(device),
      pool_(pool),
      plans_(plans),
      model_bytes_(model_bytes),
      linear_(kernels.of<LinearOp>(), device.hardware(), nullptr, ""),
      grouped_(kernels.of<GroupedLinearOp>(), device.hardware(), nullptr, ""),
      attention_(kernels.of<AttentionOp>(), device.hardware(), nullptr, ""),
      timer_(device, pool) {}

void Tuner::tune(const std::vector<LinearProblem>& same_weights) {
  const auto& first = same_weights.front();
  ColdWeights weights(first.format, first.n, first.k, find_layout(kernels_, first.layout), device_, pool_,
                      model_bytes_);
  for (const auto& problem : same_weights) {
    measure(linear_, kernels_.of<LinearOp>(), problem,
            [&](const auto& some) { return timer_.time(problem, some, weights); });
  }
}

void Tuner::tune(const std::vector<GroupedLinearProblem>& same_weights) {
  const auto& first = same_weights.front();
  ColdExperts experts(first, find_layout(kernels_, first.layout), device_, pool_, model_bytes_);
  for (const auto& problem : same_weights) {
    measure(grouped_, kernels_.of<GroupedLinearOp>(), problem,
            [&](const auto& some) { return timer_.time(problem, some, experts); });
  }
}

void Tuner::tune(const AttentionProblem& problem) {
  measure(attention_, kernels_.of<AttentionOp>(), problem,
          [&](const auto& some) { return timer_.time(problem, some); });
}

template <class Op, class Time>
void Tuner::measure(const Planner<Op>& planner, const KernelList<Op>& kernels, const typename Op::Problem& problem,
                    Time time) {
  std::vector<Measurement> times = time(worth_measuring(planner, problem));
  const auto variants = variants_of(times.front().kernel, kernels, problem, device_.hardware());
  if (!variants.empty()) {
    const auto more = time(variants);
    times.insert(times.end(), more.begin(), more.end());
  }
  plans_.put(Op::kName, to_string(problem), std::move(times));
}

}  // namespace millrace
