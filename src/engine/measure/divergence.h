// How far a model's predictions are from those of another run of it: the Kullback-Leibler divergence of the
// probabilities of the next token.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

// The divergence of softmax(logits) from softmax(exact), in nats. Each span has one logit per token.
double kl_divergence(std::span<const float> exact, std::span<const float> logits);

struct Divergence {
  double total = 0, largest = 0;
  int64_t tokens = 0;

  void add(double divergence);
  double mean() const { return tokens > 0 ? total / static_cast<double>(tokens) : 0; }
};

}  // namespace millrace
