// Runs one kernel, or in the other modes of a pass notes what running it would mean.
#pragma once

#include <chrono>

#include "dataflow/ops.h"
#include "dataflow/roofline.h"

namespace millrace {

template <class Op>
void Ops::run(const Kernel<Op>& kernel, const typename Op::Problem& problem, const typename Op::Args& args,
              const Executor& executor) {
  switch (mode_) {
    case Mode::Run:
      return kernel.run(args, executor);
    case Mode::Measure: {
      device_.finish();
      const auto start = std::chrono::steady_clock::now();
      kernel.run(args, executor);
      device_.finish();
      const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
      return times_->add(Op::kName, us.count());
    }
    case Mode::Plan:
      return;
    case Mode::Expect:
      return times_->add(Op::kName, planner<Op>().expected_us(kernel, problem));
    case Mode::Roof:
      if constexpr (requires { roof_us(problem, hardware_); }) times_->add(Op::kName, roof_us(problem, hardware_));
      return;
    case Mode::Explain:
      calls_->push_back(explain_call(planner<Op>(), problem));
  }
}

}  // namespace millrace
