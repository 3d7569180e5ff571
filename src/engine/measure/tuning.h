// Measures kernels for all problems of a model's steps, checks the new plans in whole steps, and stores the times of
// those that are not slower for later runs. On a busy machine nothing is stored.
#pragma once

#include <filesystem>
#include <functional>

#include "engine/measure/step_check.h"
#include "engine/runner.h"

namespace millrace {

struct TuningReport {
  int64_t problems = 0;
  int64_t changed = 0;  // problems where the measurement chose another kernel than the estimate
  double faster = 1;    // geometric mean of their speedups
  double error = 0;     // of the estimates of chosen kernels: median of |estimate / measured - 1|
  StepTurns steps;      // with the plans before and after
  double others = 0;    // share of the CPU time that other programs took
  std::filesystem::path file;

  bool busy() const;
  bool keeps(StepKind kind) const;  // the plans of such steps
};

// `runner` is planned, not loaded: kernels are timed with random weights.
TuningReport tune(Runner& runner, const std::shared_ptr<const WeightSource>& source,
                  const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
