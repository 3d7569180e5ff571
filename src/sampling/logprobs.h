// Log-probabilities of tokens, computed from logits.
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

// From the model's distribution before penalties, temperature and filters.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the likeliest tokens, best first
};

// ln(sum of e^logit). NaN counts as -infinity.
float log_sum_exp(std::span<const float> logits);

// Writes the tokens of the n largest logits, best first, ties by lowest token, and returns their number.
size_t likeliest(std::span<const float> logits, size_t n, int32_t* tokens);

constexpr float kImpossibleLogprob = -9999;  // OpenAI's value for -infinity, which JSON lacks

// Log-probabilities of `token` and of the `top` (at most kMostLogprobs) likeliest tokens, none below
// kImpossibleLogprob.
void fill_logprobs(std::span<const float> logits, int32_t token, int top, TokenLogprobs& out);

}  // namespace millrace
