// Prompt processing and token generation as the peers report them, against what this machine could do at best.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/runner.h"

namespace millrace {

struct BenchmarkCase {
  enum class Kind { Prompt, Generate } kind = Kind::Prompt;
  int32_t tokens = 512;      // processed, or generated, per sequence
  int32_t batch = 1;         // sequences at once; rates count all of them
  int32_t depth = 0;         // tokens already in the cache of each
  bool draw = false;         // generated tokens are drawn with the usual filters: where the device can, there
  std::string name() const;  // "pp512", "tg128"
};

struct BenchmarkResult {
  BenchmarkCase test;
  std::vector<double> samples;  // tokens per second, one per repetition
  double median = 0;
  double percent_of_roof = 0;  // of the least time that bytes and arithmetic allow on this machine
  OpTimes ops;                 // what its ops took in one more run, watched, or are expected to take
};

// Runs one untimed warm-up and then `repetitions` timed ones.
BenchmarkResult run_benchmark(Runner& runner, const BenchmarkCase& test, int repetitions);

// The same from estimates alone.
BenchmarkResult predict_benchmark(Runner& runner, const BenchmarkCase& test);

}  // namespace millrace
