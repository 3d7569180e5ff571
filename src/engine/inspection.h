// What a model file holds and what running it would take, without loading it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/runner.h"

namespace millrace {

struct Inspection {
  struct Tensor {
    std::string name, type;
    std::vector<int64_t> shape;
    int64_t bytes = 0;
  };
  std::string origin, architecture;
  int64_t parameters = 0, bytes = 0;
  std::vector<std::pair<std::string, std::string>> config;  // in the order to show it
  std::vector<Tensor> tensors;
  MemoryPlan memory;
  // From measurements and estimates, for one sequence: time to the first token of a prompt, and speed from there on.
  int32_t prompt = 512, depth = 512;
  double first_token_ms = 0, tokens_per_second = 0;
  std::string problem;  // why it cannot be run; empty: it can
};

Inspection inspect(std::shared_ptr<const WeightSource> source, const LoadOptions& options);

}  // namespace millrace
