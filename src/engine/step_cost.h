// Time of a step: expected, from measurements and estimates of the kernels that would run it, and the roofline bound.
#pragma once

#include "engine/runner.h"
#include "engine/step_pacer.h"

namespace millrace {

struct StepCost {
  OpTimes expected;
  double roof_us = 0;
  double expected_us() const { return expected.total_us(); }
};

// A step of `rows` tokens in total over `sequences` sequences. `context`: the longest one; `logit_rows`: rows that
// reach the head.
StepCost step_cost(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows);

// Time of copying a page for a branch of drafts.
double copy_page_us(Runner& runner);

// A table of the same for every number of rows. `drafts`: also for steps with drafts.
StepEstimate estimate_steps(Runner& runner, bool drafts);

}  // namespace millrace
