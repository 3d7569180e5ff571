#include "engine/measure/divergence.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

double log_of_sum(std::span<const float> logits, double most) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

}  // namespace

double kl_divergence(std::span<const float> exact, std::span<const float> logits) {
  const double p_all = log_of_sum(exact, *std::max_element(exact.begin(), exact.end()));
  const double q_all = log_of_sum(logits, *std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double p = std::exp(exact[i] - p_all);
    if (p > 0) sum += p * ((exact[i] - p_all) - (logits[i] - q_all));
  }
  return std::max(sum, 0.0);  // rounding may make it negative
}

void Divergence::add(double divergence) {
  total += divergence;
  largest = std::max(largest, divergence);
  ++tokens;
}

}  // namespace millrace
