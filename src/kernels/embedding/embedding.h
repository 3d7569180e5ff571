// Looks rows of a table up by id: out[i] = table[ids[i]] * scale, dequantized.
#pragma once

#include <span>
#include <string>

#include "kernels/kernel.h"
#include "tensor/matrix.h"

namespace millrace {

struct EmbeddingOp {
  static constexpr std::string_view kName = "embedding";
  struct Problem {
    DType format = DType::F32;
    int64_t rows = 0, cols = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    WeightView table;  // as the file holds it: only the rows asked for are read
    std::span<const int32_t> ids;
    float scale = 1;
    bool accumulate = false;  // add to what is there: position embeddings
    Matrix out;
  };
};
std::string to_string(const EmbeddingOp::Problem& problem);

}  // namespace millrace
