// Runs a kernel while somebody watches: what it takes, what its plan promises, or the least that the machine allows.
#pragma once

#include <chrono>

#include "dataflow/ops.h"
#include "dataflow/roofline.h"

namespace millrace {

template <class Op>
void Ops::run_watched(const Planner<Op>& planner, const Kernel<Op>& kernel, const typename Op::Problem& problem,
                      const typename Op::Args& args, const Executor& executor) {
  if (watch_ == Watch::Expect) return times_->add(Op::kName, planner.expected_us(kernel, problem));
  if (watch_ == Watch::Roof) {
    if constexpr (requires { roof_us(problem, hardware_); }) times_->add(Op::kName, roof_us(problem, hardware_));
    return;
  }
  device_.finish();
  const auto start = std::chrono::steady_clock::now();
  kernel.run(args, executor);
  device_.finish();
  times_->add(Op::kName, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace millrace
