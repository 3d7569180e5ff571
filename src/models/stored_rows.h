// Matrices that a file stores in another order than layers use them.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/matrix.h"

namespace millrace {

// Rows that a file stores as [groups, members, size] and a layer uses as [members, groups, size]. GPT-NeoX stores them
// by head: q, k and v of one head, then those of the next.
struct RowGroups {
  int64_t groups = 1, members = 1;
  std::vector<int64_t> sizes = {};  // of each member, in rows; empty: all have the same
  friend bool operator==(const RowGroups&, const RowGroups&) = default;
};

// Views of the rows in the order of the layer.
std::vector<WeightView> in_layer_order(const WeightView& matrix, const RowGroups& stored);

// Matrices [k, n] as one matrix [sum of n, k], in `copy`.
bool can_transpose(DType dtype);
WeightView transposed(std::span<const WeightView> matrices, std::vector<std::byte>& copy, ThreadPool& pool);
// The matrix in f32, f16 or bf16, in `copy`.
WeightView expanded(const WeightView& from, DType as, std::vector<std::byte>& copy, ThreadPool& pool);

}  // namespace millrace
