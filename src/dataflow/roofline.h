// Lower bound of a problem's time on this machine: the larger of moving its bytes and doing its arithmetic.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/causal_conv/causal_conv.h"
#include "kernels/delta_rule/delta_rule.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/latent_prompt/latent_prompt.h"
#include "kernels/linear/linear.h"
#include "kernels/ssm_scan/ssm_scan.h"

namespace millrace {

struct Work {
  double bytes = 0;       // each input read once, each output written once
  double operations = 0;  // multiply and add count as two
};

Work work_of(const LinearProblem& problem);
Work work_of(const GroupedLinearProblem& problem);
Work work_of(const AttentionProblem& problem);
Work work_of(const LatentPromptOp::Problem& problem);  // of the materialised form
// The work of recurrent ops depends on the number of sequences, and problems have rounded rows.
Work work_of(const CausalConvOp::Args& args);
Work work_of(const DeltaRuleOp::Args& args);
Work work_of(const SsmScanOp::Args& args);

double roof_us(const LinearProblem& problem, const Hardware& hardware);
double roof_us(const GroupedLinearProblem& problem, const Hardware& hardware);
double roof_us(const AttentionProblem& problem, const Hardware& hardware);
double roof_us(const LatentPromptOp::Problem& problem, const Hardware& hardware);
double roof_us(const CausalConvOp::Args& args, const Hardware& hardware);
double roof_us(const DeltaRuleOp::Args& args, const Hardware& hardware);
double roof_us(const SsmScanOp::Args& args, const Hardware& hardware);

// The bound of one call of an op; 0: the op has no roofline, because it is a small part of every step.
template <class Op>
double call_roof_us(const typename Op::Problem& problem, const typename Op::Args& args, const Hardware& hardware) {
  if constexpr (requires { roof_us(problem, hardware); }) return roof_us(problem, hardware);
  if constexpr (requires { roof_us(args, hardware); }) return roof_us(args, hardware);
  return 0;
}

}  // namespace millrace
