// The layout that keeps weights as in the file, in GPU memory, and its kernels.
#pragma once

#include <vector>

#include "kernels/linear/linear.h"

namespace millrace {

const LinearLayout& cuda_rows_layout();
const LinearKernel* cuda_rows_linear();      // any format, any activations; f32 arithmetic
const LinearKernel* cuda_f32_rows_linear();  // F32 weights, few rows
// cuBLASLt with its proposed algorithm, then with its other proposals as variants. Dequantizes quantized weights to 16
// bits first.
std::vector<const LinearKernel*> cuda_cublaslt_linear();

// Dequantizes rows [0, n) to 16 bits, for GEMMs that take no quantized weights.
void cuda_write_out(const LinearWeights& weights, DType dtype, void* to, void* queue);
// F32 weights as sums of numbers of 16 bits, [kPartsOfF32][count]; `count` is a multiple of eight.
constexpr int kPartsOfF32 = 3;
void cuda_split(const float* weights, int64_t count, DType dtype, void* to, void* queue);
// Epilogues for cuBLASLt. cuda_gate: out = silu(gate) * up in 16 bits; columns of gate and up alternate in groups of
// eight, and rows are contiguous. cuda_add_bias: y += bias. cuda_limit: replaces infinities in f16 by the largest
// finite number, as the other kernels do.
void cuda_gate(const void* gate_up, const Matrix& out, void* queue);
void cuda_add_bias(const Matrix& y, const float* bias, void* queue);
void cuda_limit(const Matrix& y, void* queue);

}  // namespace millrace
