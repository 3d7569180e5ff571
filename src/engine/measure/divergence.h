// How far a model's predictions are from those of another run of it, normally with --exact: the Kullback-Leibler
// divergence of the probabilities of the next token.
#pragma once

#include <functional>
#include <span>

#include "engine/runner.h"

namespace millrace {

// Of the softmax of `logits` from that of `exact`, in nats. Both have one logit per token.
double kl_divergence(std::span<const float> exact, std::span<const float> logits);

struct Divergence {
  double mean = 0, largest = 0;
  int64_t tokens = 0;
};

// Windows, their scored halves and `bos` are those of measure_perplexity(). Both runners must have been loaded for as
// many rows of logits as rows.
Divergence measure_divergence(Runner& exact, Runner& runner, std::span<const int32_t> tokens, int32_t context,
                              int64_t most_windows, int32_t bos,
                              const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
