// Weights in a GPU's memory just as the file holds them, and the kernels that read them so.
#pragma once

#include <vector>

#include "kernels/linear/linear.h"

namespace millrace {

const LinearLayout& cuda_rows_layout();
const LinearKernel* cuda_rows_linear();  // any format, any activations: f32 arithmetic
// cuBLASLt, first with the algorithm that it proposes, then with its other proposals; quantized weights are written out
// in 16 bits first.
std::vector<const LinearKernel*> cuda_cublaslt_linear();

// Rows [0, n) of weights in 16 bits: for matrix products that take no quantized weights.
void cuda_write_out(const LinearWeights& weights, DType dtype, void* to, void* queue);
// For kernels without an epilogue of their own: out = silu(gate) * up in 16 bits, where columns of both alternate in
// groups of eight and rows of them follow each other; y += bias; f16 that went beyond its range comes back into it, as
// the others leave it.
void cuda_gate(const void* gate_up, const Matrix& out, void* queue);
void cuda_add_bias(const Matrix& y, const float* bias, void* queue);
void cuda_limit(const Matrix& y, void* queue);

}  // namespace millrace
