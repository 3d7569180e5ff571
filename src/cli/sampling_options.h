// Sampling on the command line: what the user does not set is the model's own default.
#pragma once

#include <optional>

#include "cli/verb.h"
#include "engine/runner.h"
#include "sampling/sampling_params.h"

namespace millrace {

struct SamplingOptions : SamplingOverrides {
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // ID:BIAS
  int32_t max_tokens = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

void add_sampling_options(CLI::App& verb, SamplingOptions& options);

// The defaults with the user's settings over them; a seed is drawn where none was given.
SamplingParams sampling_params(const SamplingOptions& options, const SamplingParams& defaults);

// "temperature 0.2, top-p 0.9, seed 1234": for -v and for people who want to repeat a run.
std::string describe(const SamplingParams& params);

// One line on stderr where a person reads it: which device, how much context, which sampling, and where that comes
// from.
void tell_settings(const Runner& runner, const SamplingParams& params, bool from_model);

}  // namespace millrace
