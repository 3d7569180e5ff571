// Sampling parameters. The processors run in this order:
//   repetition penalty, frequency and presence penalties, logit bias, token mask,
//   temperature (0: take the likeliest token and stop), top-k, top-p, min-p, typical, draw.
// As in Hugging Face transformers, each filter sees the renormalised output of the previous one.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace millrace {

struct SamplingParams {
  float temperature = 1;  // 0: greedy
  int top_k = 0;          // 0 or -1: all
  float top_p = 1;        // keep the likeliest tokens up to this mass; 1: all, 0: the likeliest
  float min_p = 0;        // drop tokens below this fraction of the largest probability
  float typical_p = 1;    // keep the tokens nearest to the entropy up to this mass; 1: all

  float repetition_penalty = 1;  // prompt and answer: divides positive logits, multiplies others
  int repetition_window = 0;     // number of last tokens it applies to; 0: all
  float frequency_penalty = 0;   // answer only: subtracted once per occurrence of a token
  float presence_penalty = 0;    // answer only: subtracted once from each token that occurred

  std::vector<std::pair<int32_t, float>> logit_bias;  // token, summand
  uint64_t seed = 0;                                  // the same seed gives the same text
  uint64_t stream = 0;                                // index among several answers to one prompt and seed
  int logprobs = -1;                                  // report the chosen token and this many likeliest; -1: none
};

constexpr int kMostLogprobs = 20;
constexpr float kGreedyBelow = 1e-5f;  // lower temperatures are greedy: logits / temperature would overflow

inline bool is_greedy(const SamplingParams& params) { return params.temperature < kGreedyBelow; }
inline bool has_penalties(const SamplingParams& params) {  // on tokens that occurred before
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 || params.presence_penalty != 0;
}

// Parameters of a command line or a request. Unset ones keep the model's defaults.
struct SamplingOverrides {
  std::optional<float> temperature, top_p, min_p, typical_p, repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int> top_k;
};
SamplingParams with_overrides(SamplingParams params, const SamplingOverrides& overrides);

// Throws Usage with the name of the invalid field.
void validate(const SamplingParams& params);

}  // namespace millrace
