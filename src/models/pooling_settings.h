// How a model's files want embeddings made: the modules of a sentence-transformers folder, or GGUF's pooling_type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "kernels/pool/pool.h"

namespace millrace {

struct PoolingSettings {
  struct Dense {       // a linear layer behind the pooling
    std::string name;  // prefix of its tensors in the folder: "2_Dense.linear."
    int64_t in = 0, out = 0;
    bool tanh = false;
  };
  std::optional<PoolKind> kind;  // nullopt: the files say nothing
  bool normalise = true;         // scale the result to length 1
  bool ranks = false;            // a classifier of pairs (GGUF's pooling type 4)
  std::vector<Dense> dense;
  int64_t longest = 0;  // tokens of an input; 0: as many as the model has positions
};

PoolingSettings read_pooling(const WeightSource& source);

}  // namespace millrace
