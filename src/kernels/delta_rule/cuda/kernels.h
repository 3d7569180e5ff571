// The CUDA kernels of the delta rule.
#pragma once

#include <cstdint>

#include "kernels/delta_rule/delta_rule.h"

namespace millrace {

// Row after row, with the state in registers.
const Kernel<DeltaRuleOp>& delta_rule_by_rows();
// The same for the slices of so many rows; the other ones are left out.
void run_delta_rule_by_rows(const DeltaRuleOp::Args& args, const Executor& executor, int32_t least_rows,
                            int32_t most_rows);
// The norm and the gate behind the rule, if the args have them.
void run_gated_norm(const DeltaRuleOp::Args& args, const Executor& executor);
// Convolution, rule, norm and gate of slices of one row, in one launch.
bool can_step_at_once(const DeltaRuleOp::Args& args, const Hardware& hardware);
void run_delta_step(const DeltaRuleOp::Args& args, const Executor& executor);
// Prompts in chunks, as matrix products; single rows in one pass over the state.
const Kernel<DeltaRuleOp>& delta_rule_by_chunks();

}  // namespace millrace
