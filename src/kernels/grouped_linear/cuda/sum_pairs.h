// The weighted sum over the pairs of a row, for kernels that leave the products of each pair in the workspace.
#pragma once

#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/cuda/launch.h"

namespace millrace {

// y[row] += products[row * per_row] + products[row * per_row + 1] + ..., in this order, without the pairs that the
// routing skips. `products` has y's columns.
cudaError_t add_pairs(const Matrix& products, const Routing& routing, const Matrix& y, const CudaStep& step);

}  // namespace millrace
