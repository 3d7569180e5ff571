// The weighted sum over the pairs of a row, for kernels that leave the products of each pair in the workspace.
#pragma once

#include <algorithm>

#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/cuda/launch.h"

namespace millrace {

// The products of a prompt's pairs are rounded to bf16: writing and reading f32 would take a tenth of the time.
inline constexpr int64_t kRoundedPairs = 4096;
inline DType product_type(int64_t pairs, bool invariant) {
  return pairs >= kRoundedPairs && !invariant ? DType::BF16 : DType::F32;
}
inline int64_t product_bytes(const GroupedLinearProblem& p) {
  return product_type(p.pairs(), p.invariant) == DType::BF16 ? 2 : 4;
}
inline Matrix products_of(const GroupedLinearArgs& a, std::byte* workspace) {
  return {product_type(a.routing.pairs(), a.invariant), a.routing.pairs(), a.weights->n, a.weights->n, workspace};
}
// A step may have fewer pairs than its bucket, and then f32 products.
inline size_t products_workspace(const GroupedLinearProblem& p) {
  const int64_t each = std::max(p.pairs() * product_bytes(p), 4 * std::min(p.pairs(), kRoundedPairs));
  return p.sum ? static_cast<size_t>(each * p.n) : 0;
}

// The same in f32 whatever their number, for kernels of few rows.
inline Matrix f32_products_of(const GroupedLinearArgs& a, std::byte* workspace) {
  return {DType::F32, a.routing.pairs(), a.weights->n, a.weights->n, workspace};
}
inline size_t f32_products_workspace(const GroupedLinearProblem& p) {
  return p.sum ? static_cast<size_t>(p.pairs() * p.n) * sizeof(float) : 0;
}

// y[row] += products[row * per_row] + products[row * per_row + 1] + ..., in this order, without the pairs that the
// routing skips. `products` has y's columns.
cudaError_t add_pairs(const Matrix& products, const Routing& routing, const Matrix& y, const CudaStep& step);

}  // namespace millrace
