// Measures the kernels with the best estimates and stores their times in the plan cache.
#pragma once

#include "dataflow/kernel_timer.h"
#include "dataflow/planner.h"

namespace millrace {

class Tuner {
 public:
  // `model_bytes`: all weights of the model, which decide whether a matrix is in a cache when a step reads it again.
  Tuner(const KernelSet& kernels, Device& device, ThreadPool& pool, PlanCache& plans, size_t model_bytes = SIZE_MAX);

  // All buckets of one matrix, so that the random weights are generated once.
  void tune(const std::vector<LinearProblem>& same_weights);
  void tune(const std::vector<GroupedLinearProblem>& same_weights);
  void tune(const AttentionProblem& problem);

 private:
  // Measures the best few by estimate, then the variants of the fastest of them whose ranking needs a measurement.
  template <class Op, class Time>
  void measure(const Planner<Op>& planner, const KernelList<Op>& kernels, const typename Op::Problem& problem,
               Time time);

  const KernelSet& kernels_;
  Device& device_;
  ThreadPool& pool_;
  PlanCache& plans_;
  size_t model_bytes_;
  Planner<LinearOp> linear_;
  Planner<GroupedLinearOp> grouped_;
  Planner<AttentionOp> attention_;
  KernelTimer timer_;
};

// The best few kernels by estimate; kernels far behind the best are left out.
template <class Op>
std::vector<const Kernel<Op>*> worth_measuring(const Planner<Op>& planner, const typename Op::Problem& problem) {
  constexpr size_t kMost = 5;
  constexpr double kFarBehind = 4;  // times the best estimate
  std::vector<const Kernel<Op>*> all;
  const auto ranked = planner.rank(problem);
  for (const auto& candidate : ranked) {
    if (all.size() == kMost || candidate.estimate_us > kFarBehind * ranked.front().estimate_us) break;
    all.push_back(candidate.kernel);
  }
  return all;
}

}  // namespace millrace
