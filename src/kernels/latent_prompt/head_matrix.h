// Matrices of a grouped linear layer as f32, whatever format and layout they have.
#pragma once

#include "kernels/grouped_linear/expert_choice.h"

namespace millrace {

class HeadMatrix {
 public:
  HeadMatrix(const GroupedWeights& weights, const Hardware& hardware);

  // Memory that reading a matrix [n, k] takes, in any layout.
  static size_t bytes(int64_t n, int64_t k);

  // Matrix `group`, [n, k], to rows of `out`; `transposed`: to its columns. Rows of `out` are `stride` apart.
  void read(int64_t group, bool transposed, float* out, int64_t stride, std::byte* memory) const;

 private:
  void read_rows(const std::byte* rows, bool transposed, float* out, int64_t stride, std::byte* memory) const;
  void read_packed(const std::byte* packed, bool transposed, float* out, int64_t stride, std::byte* memory) const;

  const GroupedWeights& weights_;
  const PieceKernel* kernel_ = nullptr;  // null: the matrices are rows of a file
};

}  // namespace millrace
