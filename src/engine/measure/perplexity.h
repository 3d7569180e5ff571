// Perplexity as llama.cpp computes it: windows of `context` tokens, the second half of each scored.
#pragma once

#include <functional>
#include <span>

#include "engine/runner.h"

namespace millrace {

struct PerplexityResult {
  double perplexity = 0;
  int64_t tokens = 0;  // scored
  int64_t windows = 0;
};

// `bos`: replaces the first token of every window, if the model's texts begin with one; -1: none.
PerplexityResult measure_perplexity(
    Runner& runner, std::span<const int32_t> tokens, int32_t context, int64_t most_windows, int32_t bos,
    const std::function<void(int64_t done, int64_t total, double perplexity)>& progress);

}  // namespace millrace
