// Looks rows of a table up by id: out[i] = table[ids[i]] * scale, dequantized. An id below zero stands for one that is
// not known yet when the step is put together: chosen[~id], by a row of the step before.
#pragma once

#include <algorithm>
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
    const int32_t* chosen = nullptr;

    int32_t id(int64_t row) const {  // on the host; a sequence that chose nothing (-1) has ended, and any row will do
      const int32_t id = ids[static_cast<size_t>(row)];
      return id >= 0 ? id : std::max(0, chosen[~id]);
    }
  };

  static KernelList<EmbeddingOp> cpu();  // best first where estimates tie
  static KernelList<EmbeddingOp> cuda();
  static const Kernel<EmbeddingOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const EmbeddingOp::Problem& problem);

}  // namespace millrace
