// Measures kernels for all problems of a model's steps and stores the times for later runs.
#pragma once

#include <filesystem>
#include <functional>

#include "engine/runner.h"

namespace millrace {

struct TuningReport {
  int64_t problems = 0;
  int64_t changed = 0;  // problems where the measurement chose another kernel than the estimate
  double faster = 1;    // geometric mean of their speedups
  double error = 0;     // of the estimates of chosen kernels: median of |estimate / measured - 1|
  std::filesystem::path file;
};

TuningReport tune(Runner& runner, const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
