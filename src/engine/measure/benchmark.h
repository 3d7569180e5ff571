// Speed of prompt processing and token generation, measured as llama.cpp and others do, against this machine's
// roofline.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/runner.h"

namespace millrace {

struct BenchmarkCase {
  enum class Kind { Prompt, Generate } kind = Kind::Prompt;
  int32_t tokens = 512;      // processed or generated per sequence
  int32_t batch = 1;         // sequences per step; rates count all of them
  int32_t depth = 0;         // cached tokens of each sequence before the test
  bool draw = false;         // sample with the usual filters instead of argmax, on the device if it can
  std::string name() const;  // "pp512", "tg128"
};

struct BenchmarkResult {
  BenchmarkCase test;
  std::vector<double> samples;  // tokens per second, one per repetition
  double median = 0;
  double percent_of_roof = 0;  // roofline time / measured time
  OpTimes ops;                 // measured in one additional run, or estimated
};

// Runs one untimed warm-up and then `repetitions` timed ones.
BenchmarkResult run_benchmark(Runner& runner, const BenchmarkCase& test, int repetitions);

// The same from estimates and stored measurements, without running a step.
BenchmarkResult predict_benchmark(Runner& runner, const BenchmarkCase& test);

}  // namespace millrace
