// Embedding lookup with dequantization: out[i] = table[ids[i]] * scale. A negative id is a token that the previous step
// chooses on the device: its id is chosen[~id].
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
    WeightView table;  // in the file's format
    std::span<const int32_t> ids;
    float scale = 1;
    bool accumulate = false;  // out += instead of out =, for position embeddings
    Matrix out;
    const int32_t* chosen = nullptr;

    // Host only. `chosen` is -1 if the sequence ended; its output is unused then.
    int32_t id(int64_t row) const {
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
