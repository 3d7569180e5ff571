// Every choice the dataflow makes for a model and a batch, with what it chose from.
#pragma once

#include <string>
#include <vector>

#include "engine/runner.h"

namespace millrace {

struct ExplainedCandidate {
  std::string kernel;
  double estimate_us = 0, measured_us = 0;  // measured 0: not tuned
  double percent_of_roof = 0;
};

struct ExplainedChoice {
  std::string op, what, format, layout;  // what: "attention of layer 0" or the use of a linear layer
  int64_t n = 0, k = 0, m = 0;
  int64_t calls = 0;                           // per step
  std::vector<ExplainedCandidate> candidates;  // the chosen one first
};

// For decode steps of each batch size, and for one prefill step.
std::vector<ExplainedChoice> explain(Runner& runner, const std::vector<int32_t>& batches, int64_t context);

// The paper's crossovers for one [n, k]: from m1 rows on the kernel for one row is no longer chosen, from m2 on the one
// for long prompts is. 0: never within the largest step.
struct Crossover {
  int64_t n = 0, k = 0;
  std::string format;
  int64_t m1 = 0, m2 = 0;
};
std::vector<Crossover> crossovers(const Runner& runner);

}  // namespace millrace
