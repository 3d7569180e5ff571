#include "sampling/sampling_params.h"

#include <cmath>

#include "base/error.h"

namespace millrace {
namespace {

void require(bool holds, const char* field, double value, const char* range) {
  if (!holds) fail(ErrorKind::Usage, "{} is {:g} and must be {}", field, value, range);
}

bool within(float value, float low, float high) { return value >= low && value <= high; }  // false for NaN

}  // namespace

SamplingParams with_overrides(SamplingParams p, const SamplingOverrides& o) {
  p.temperature = o.temperature.value_or(p.temperature);
  p.top_k = o.top_k.value_or(p.top_k);
  p.top_p = o.top_p.value_or(p.top_p);
  p.min_p = o.min_p.value_or(p.min_p);
  p.typical_p = o.typical_p.value_or(p.typical_p);
  p.repetition_penalty = o.repetition_penalty.value_or(p.repetition_penalty);
  p.frequency_penalty = o.frequency_penalty.value_or(p.frequency_penalty);
  p.presence_penalty = o.presence_penalty.value_or(p.presence_penalty);
  return p;
}

void validate(const SamplingParams& p) {
  require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature, "0 or more");
  require(p.top_k >= -1, "top_k", p.top_k, "0 or more");
  require(within(p.top_p, 0, 1), "top_p", p.top_p, "from 0 to 1");
  require(within(p.min_p, 0, 1), "min_p", p.min_p, "from 0 to 1");
  require(within(p.typical_p, 0, 1), "typical_p", p.typical_p, "from 0 to 1");
  require(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty), "repetition_penalty", p.repetition_penalty,
          "over 0");
  require(p.repetition_window >= 0, "repetition_window", p.repetition_window, "0 or more");
  require(within(p.frequency_penalty, -2, 2), "frequency_penalty", p.frequency_penalty, "from -2 to 2");
  require(within(p.presence_penalty, -2, 2), "presence_penalty", p.presence_penalty, "from -2 to 2");
  require(p.logprobs >= -1 && p.logprobs <= kMostLogprobs, "logprobs", p.logprobs, "from 0 to 20");
  for (const auto& [token, bias] : p.logit_bias) {
    require(token >= 0, "logit_bias's token", token, "0 or more");
    require(within(bias, -100, 100), "logit_bias", bias, "from -100 to 100");
  }
}

}  // namespace millrace
