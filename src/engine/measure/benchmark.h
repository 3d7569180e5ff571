// Speed of prompt processing and token generation, measured as llama.cpp and others do, against this machine's
// roofline.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/drafter.h"
#include "engine/runner.h"

namespace millrace {

struct BenchmarkCase {
  enum class Kind { Prompt, Generate } kind = Kind::Prompt;
  int32_t tokens = 512;  // processed or generated per sequence
  int32_t batch = 1;     // sequences per step; rates count all of them
  int32_t depth = 0;     // cached tokens of each sequence before the test
  bool draw = false;     // sample with the usual filters instead of argmax, on the device if it can
  // Every step verifies so many draft tokens per sequence. Each is accepted with this probability if all before it are.
  int32_t drafts = 0;
  double acceptance = 0;
  // Chains per sequence: the drafts, and branches with other first tokens. `second`: the probability that a branch
  // begins with the right token if the drafts and the branches before it do not.
  int32_t width = 1;
  double second = 0;
  int64_t rows_per_sequence() const { return int64_t{width} * (1 + drafts); }
  std::string name() const;                 // "pp512", "tg128"
  int64_t positions(int block_size) const;  // of the KV cache, in whole pages
};

struct BenchmarkResult {
  BenchmarkCase test;
  std::vector<double> samples;  // tokens per second, one per repetition
  double median = 0;
  double percent_of_roof = 0;  // roofline time / measured time
  OpTimes ops;                 // measured in one additional run, or estimated
};

// How many of `batch` prompts of so many tokens one step computes.
int64_t prompts_of_step(const LoadOptions& options, int64_t batch, int64_t tokens);

// Sizes sequences, context and KV cache for the largest of these cases.
void size_for(LoadOptions& options, std::span<const BenchmarkCase> cases);

struct FittingCases {
  std::vector<BenchmarkCase> fit, too_large;
};
// Leaves out the cases with the largest KV cache until memory holds the rest. The smallest ones are always kept: if
// they do not fit either, loading reports it.
FittingCases cases_that_fit(std::vector<BenchmarkCase> cases, LoadOptions options,
                            FunctionRef<bool(const LoadOptions&)> fits);

// Runs one untimed warm-up and then `repetitions` timed ones. With a drafter the time includes its work: it drafts
// before each step with drafts and follows all steps, as in the engine. Its tokens are accepted as the case says.
BenchmarkResult run_benchmark(Runner& runner, const BenchmarkCase& test, int repetitions, Drafter* drafter = nullptr);

// The same from estimates and stored measurements, without running a step. `passes`: of a drafter (Drafter::passes).
BenchmarkResult predict_benchmark(Runner& runner, const BenchmarkCase& test, Runner* passes = nullptr);

double median_of(std::vector<double> values);

}  // namespace millrace
