// Every choice the dataflow makes for a model and a batch, with the kernels it chose from.
#pragma once

#include <string>
#include <vector>

#include "engine/runner.h"

namespace millrace {

// The calls of decode steps of each batch size, and of one prefill step. Equal calls are one entry.
std::vector<OpCall> explain(Runner& runner, const std::vector<int32_t>& batches, int64_t context);

// The paper's crossovers for one [n, k]: from m1 rows on the kernel for one row is no longer chosen, from m2 on the one
// for long prompts is. 0: never within the largest step.
struct Crossover {
  int64_t n = 0, k = 0;
  std::string format;
  int64_t m1 = 0, m2 = 0;
};
std::vector<Crossover> crossovers(Runner& runner);

}  // namespace millrace
