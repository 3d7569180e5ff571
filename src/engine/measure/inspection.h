// Describes a model file and the memory and time that running it would take, without loading it.
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
  int64_t active_parameters = 0;                            // that one token uses: fewer in a mixture of experts
  std::vector<std::pair<std::string, std::string>> config;  // in display order
  std::vector<Tensor> tensors;
  MemoryPlan memory;
  HostShare host;  // weights that stay in host memory beside a GPU
  MappedExperts mapped;
  // Estimates for one sequence: time to the first token, and decode speed at `depth` cached tokens.
  int32_t prompt = 512, depth = 512;
  double first_token_ms = 0, tokens_per_second = 0;
  std::string problem;  // why the model cannot run; empty: it can
};

Inspection inspect(std::shared_ptr<const WeightSource> source, const LoadOptions& options);

}  // namespace millrace
