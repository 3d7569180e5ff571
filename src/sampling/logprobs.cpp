#include "sampling/logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "sampling/sampling_params.h"

namespace millrace {

float log_sum_exp(std::span<const float> logits) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity(), kLargest = std::numeric_limits<float>::max();
  float best = kLowest;
  for (const float x : logits) best = x > best ? x : best;
  if (best == kLowest) return 0;
  best = std::min(best, kLargest);
  double sum = 0;
  for (const float x : logits) {
    if (x > kLowest) sum += std::exp(std::min(x, kLargest) - best);
  }
  return static_cast<float>(best + std::log(sum));
}

size_t likeliest(std::span<const float> logits, size_t n, int32_t* tokens) {
  size_t count = 0;
  for (size_t i = 0; i < logits.size() && n > 0; ++i) {
    const float x = logits[i];
    if (std::isnan(x) || (count == n && x <= logits[static_cast<size_t>(tokens[count - 1])])) continue;
    if (count < n) ++count;
    size_t at = count - 1;  // n is small: insertion is as fast as a heap
    for (; at > 0 && x > logits[static_cast<size_t>(tokens[at - 1])]; --at) tokens[at] = tokens[at - 1];
    tokens[at] = static_cast<int32_t>(i);
  }
  return count;
}

void fill_logprobs(std::span<const float> logits, int32_t token, int top, TokenLogprobs& out) {
  const float whole = log_sum_exp(logits);
  const auto logprob = [&](int32_t t) {
    const float value = logits[static_cast<size_t>(t)] - whole;
    return TokenLogprob{t, value > kImpossibleLogprob ? std::min(value, 0.0f) : kImpossibleLogprob};  // NaN too
  };
  std::array<int32_t, kMostLogprobs> best;
  const size_t count = likeliest(logits, static_cast<size_t>(std::clamp(top, 0, kMostLogprobs)), best.data());
  out.chosen = logprob(token);
  out.top.clear();
  for (size_t i = 0; i < count; ++i) out.top.push_back(logprob(best[i]));
}

}  // namespace millrace
