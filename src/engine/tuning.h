// Measures the kernels for the problems that a model's steps pose, and keeps the times for the runs to come.
#pragma once

#include <filesystem>
#include <functional>

#include "engine/runner.h"

namespace millrace {

struct TuningReport {
  int64_t problems = 0;
  int64_t changed = 0;  // choices that the estimates had made otherwise
  double faster = 1;    // what those choices gain, as a geometric mean
  double error = 0;     // of the estimates of chosen kernels: median of |estimate / measured - 1|
  std::filesystem::path file;
};

TuningReport tune(Runner& runner, const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
