// Lists every kernel choice of the dataflow for a model and a batch, with the candidates.
#pragma once

#include <string>
#include <vector>

#include "engine/runner.h"

namespace millrace {

// The calls of one decode step per batch size and of one prefill step. Equal calls are merged.
std::vector<OpCall> explain(Runner& runner, const std::vector<int32_t>& batches, int64_t context);

// Crossovers for one [n, k]: from m1 rows on the kernel for one row is no longer chosen, from m2 rows on the kernel for
// long prompts is. 0: not within the largest step.
struct Crossover {
  int64_t n = 0, k = 0;
  std::string format;
  int64_t m1 = 0, m2 = 0;
};
std::vector<Crossover> crossovers(Runner& runner);

}  // namespace millrace
