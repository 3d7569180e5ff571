// Sampling options. Unset ones take the model's own defaults.
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

// The defaults overridden by the options; draws a seed if none is given.
SamplingParams sampling_params(const SamplingOptions& options, const SamplingParams& defaults);

// "temperature 0.2, top-p 0.9, seed 1234": for -v, and to repeat a run.
std::string describe(const SamplingParams& params);

// If stderr is a terminal, prints one line: device, context, sampling and whether the model or the user set it.
void tell_settings(const Runner& runner, const SamplingParams& params, bool from_model);

}  // namespace millrace
