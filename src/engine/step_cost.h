// What a step should take: from the measurements and estimates of all kernels that would run it, and at best from the
// machine's roof.
#pragma once

#include "engine/runner.h"

namespace millrace {

struct StepCost {
  OpTimes expected;
  double roof_us = 0;
  double expected_us() const { return expected.total_us(); }
};

// A step of `rows` tokens in all over `sequences` sequences whose longest context is `context`; `logit_rows` rows reach
// the head.
StepCost step_cost(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows);

}  // namespace millrace
