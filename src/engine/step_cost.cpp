#include "engine/step_cost.h"

namespace millrace {

StepCost step_cost(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows) {
  const StepShape shape{rows, sequences, context, logit_rows};
  StepCost cost;
  OpTimes roof;
  runner.rank().dry_pass(shape, Ops::Mode::Expect, &cost.expected);
  runner.rank().dry_pass(shape, Ops::Mode::Roof, &roof);
  cost.roof_us = roof.total_us();
  return cost;
}

}  // namespace millrace
