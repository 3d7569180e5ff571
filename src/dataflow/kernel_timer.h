// Times kernels against each other on one problem, in turns and cold. Never inside a step.
#pragma once

#include <span>
#include <vector>

#include "dataflow/cold_inputs.h"
#include "dataflow/plan_cache.h"

namespace millrace {

struct TimingEffort {
  int least_rounds = 5;
  double seconds = 0.01;      // of all kernels together, unless the least rounds take longer
  double hopeless = 1.5;      // times the best: what takes longer in the first rounds is timed no further
  double most_seconds = 0.2;  // even before the least rounds are done
};

class KernelTimer {
 public:
  KernelTimer(Device& device, ThreadPool& pool, TimingEffort effort = {});

  // Microseconds of each kernel, best first: the least of its rounds, since other processes only ever add.
  std::vector<Measurement> time(const LinearProblem& problem, std::span<const LinearKernel* const> kernels,
                                ColdWeights& weights);
  std::vector<Measurement> time(const AttentionProblem& problem, std::span<const AttentionKernel* const> kernels);

 private:
  template <class Op, class NextArgs>
  std::vector<Measurement> race(const typename Op::Problem& problem, std::span<const Kernel<Op>* const> kernels,
                                NextArgs next_args);

  // A GPU's kernels are timed as a step runs them: many launches in a row, recorded.
  template <class Op, class NextArgs>
  double recorded_us(const Kernel<Op>& kernel, const Executor& executor, NextArgs& next_args);

  Device& device_;
  const Hardware& hardware_;
  ThreadPool& pool_;
  TimingEffort effort_;
};

}  // namespace millrace
