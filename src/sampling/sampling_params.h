// How the next token is chosen. The processors run in this order, each on what the one before left:
//   repetition penalty, frequency and presence penalties, logit bias, token mask,
//   temperature (0: the likeliest token, and nothing below matters), top-k, top-p, min-p, typical, the draw.
// It is the order of Hugging Face transformers, and like there each filter sees the renormalised rest.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace millrace {

struct SamplingParams {
  float temperature = 1;  // 0: greedy
  int top_k = 0;          // 0 or -1: all
  float top_p = 1;        // the likeliest tokens that make up this much; 1: all, 0: the likeliest
  float min_p = 0;        // none less likely than this share of the likeliest
  float typical_p = 1;    // the tokens nearest to the expected surprise that make up this much; 1: all

  float repetition_penalty = 1;  // prompt and answer: positive logits are divided by it, others multiplied
  int repetition_window = 0;     // of the last so many tokens; 0: of all
  float frequency_penalty = 0;   // answer only: subtracted once for each time a token was generated
  float presence_penalty = 0;    // answer only: subtracted once from each token that was generated

  std::vector<std::pair<int32_t, float>> logit_bias;  // token, what is added
  uint64_t seed = 0;                                  // the same seed gives the same text
  uint64_t stream = 0;                                // which of several answers to the same prompt and seed
  int logprobs = -1;                                  // report the chosen token and so many of the likeliest; -1: none
};

constexpr int kMostLogprobs = 20;
constexpr float kGreedyBelow = 1e-5f;  // a temperature under this is greedy: the quotients would overflow

inline bool is_greedy(const SamplingParams& params) { return params.temperature < kGreedyBelow; }
inline bool has_penalties(const SamplingParams& params) {  // for tokens that were there before
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 || params.presence_penalty != 0;
}

// What somebody asks for, on the command line or in a request; the rest is as the model wants it.
struct SamplingOverrides {
  std::optional<float> temperature, top_p, min_p, typical_p, repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int> top_k;
};
SamplingParams with_overrides(SamplingParams params, const SamplingOverrides& overrides);

// Throws Usage that names the field.
void validate(const SamplingParams& params);

}  // namespace millrace
