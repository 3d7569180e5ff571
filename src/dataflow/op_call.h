// One kernel call of a dry pass for `explain`: the problem and the kernels that can run it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataflow/planner.h"
#include "dataflow/roofline.h"

namespace millrace {

struct OpCall {
  struct Candidate {
    std::string kernel;
    double estimate_us = 0, measured_us = 0;  // measured_us 0: not tuned
    double percent_of_roof = 0;               // 0: the op has no roofline
  };
  std::string op, problem;      // problem: the key in the plan cache
  std::string format, layout;   // of weights, or of the KV cache
  int64_t n = 0, k = 0, m = 0;  // outputs, inputs (attention: context), rows
  int64_t calls = 1;
  bool on_host = false;   // the CPU computes it, on a device whose memory does not hold the weights
  bool has_roof = false;  // the op's least time on this machine is known: it moves or computes enough to matter
  std::vector<Candidate> candidates;  // the chosen one first
};

inline void describe(const LinearProblem& p, OpCall& call) {
  call.format = name(p.format);
  call.layout = p.layout;
  call.n = p.n;
  call.k = p.k;
  call.m = p.m;
}

inline void describe(const GroupedLinearProblem& p, OpCall& call) {
  call.format = name(p.format);
  call.layout = p.layout;
  call.n = p.n;
  call.k = p.k;
  call.m = p.rows;
}

inline void describe(const AttentionProblem& p, OpCall& call) {
  call.format = name(p.kv);
  call.layout = "pages";
  call.n = int64_t{p.heads} * p.value_dim;
  call.k = p.context;
  call.m = p.rows;
}

inline void describe(const LatentPromptOp::Problem& p, OpCall& call) {
  call.format = name(p.kv);
  call.layout = "pages";
  call.n = int64_t{p.heads} * p.value_dim;
  call.k = p.context;
  call.m = p.rows;
}

template <class Problem>
void describe(const Problem& p, OpCall& call) {
  if constexpr (requires { p.rows; }) call.m = p.rows;
  if constexpr (requires { p.cols; }) call.n = p.cols;
}

template <class Op>
OpCall explain_call(const Planner<Op>& planner, const typename Op::Problem& problem, const typename Op::Args& args) {
  OpCall call{.op = std::string(Op::kName), .problem = to_string(problem)};
  describe(problem, call);
  const double roof = call_roof_us<Op>(problem, args, planner.hardware());
  call.has_roof = roof > 0;
  const auto bucket = [&] {
    if constexpr (requires { problem.bucketed(); })
      return problem.bucketed();
    else
      return problem;
  };
  for (const auto& c : planner.rank(bucket())) {
    const double us = c.measured_us > 0 ? c.measured_us : c.estimate_us;
    call.candidates.push_back({std::string(c.kernel->name()), c.estimate_us, c.measured_us, 100 * roof / us});
  }
  return call;
}

}  // namespace millrace
