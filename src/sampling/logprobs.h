// Log-probabilities of the likeliest tokens, straight from logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace {

// ln of the sum of e^logit: what a logit's log-probability is short of it. NaN counts as -infinity.
float log_sum_exp(std::span<const float> logits);

// The tokens of the n largest logits, best first, ties lowest first; tokens has room for n. Returns how many there are.
size_t likeliest(std::span<const float> logits, size_t n, int32_t* tokens);

}  // namespace millrace
