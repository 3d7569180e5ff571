// Log-probabilities of tokens, straight from logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// From the model's own distribution, before penalties, temperature and filters.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the likeliest, best first
};

// ln of the sum of e^logit: what a logit's log-probability is short of it. NaN counts as -infinity.
float log_sum_exp(std::span<const float> logits);

// The tokens of the n largest logits, best first, ties lowest first; tokens has room for n. Returns how many there are.
size_t likeliest(std::span<const float> logits, size_t n, int32_t* tokens);

constexpr float kImpossibleLogprob = -9999;  // OpenAI's way to say so: JSON has no infinity

// The log-probability of `token` and of the `top` (up to kMostLogprobs) likeliest; kImpossibleLogprob at least.
void fill_logprobs(std::span<const float> logits, int32_t token, int top, TokenLogprobs& out);

}  // namespace millrace
