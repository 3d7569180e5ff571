// Times competing kernels on one problem: one launch of each in turn, with cold inputs. Not for use inside a step.
#pragma once

#include <span>
#include <vector>

#include "dataflow/cold_inputs.h"
#include "dataflow/plan_cache.h"

namespace millrace {

struct TimingEffort {
  int least_rounds = 5;
  double seconds = 0.01;      // total for all kernels, unless least_rounds takes longer
  double hopeless = 1.5;      // a kernel slower than this multiple of the best after the first rounds is dropped
  double most_seconds = 0.2;  // limit that also holds for least_rounds
};

class KernelTimer {
 public:
  KernelTimer(Device& device, ThreadPool& pool, TimingEffort effort = {});

  // Microseconds of each kernel, best first. Takes the minimum over the rounds, because other processes only add time.
  std::vector<Measurement> time(const LinearProblem& problem, std::span<const LinearKernel* const> kernels,
                                ColdWeights& weights);
  std::vector<Measurement> time(const GroupedLinearProblem& problem,
                                std::span<const Kernel<GroupedLinearOp>* const> kernels, ColdExperts& experts,
                                double skew = 0);  // of RandomRoutings
  std::vector<Measurement> time(const AttentionProblem& problem, std::span<const AttentionKernel* const> kernels);

 private:
  template <class Op, class NextArgs>
  std::vector<Measurement> race(const typename Op::Problem& problem, std::span<const Kernel<Op>* const> kernels,
                                NextArgs next_args);

  // On a GPU: times a recording of many launches in a row, which is how a step runs them.
  template <class Op, class NextArgs>
  double recorded_us(const Kernel<Op>& kernel, const Executor& executor, NextArgs& next_args);

  Device& device_;
  const Hardware& hardware_;
  ThreadPool& pool_;
  TimingEffort effort_;
};

}  // namespace millrace
