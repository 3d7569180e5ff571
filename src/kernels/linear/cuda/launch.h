// Linear layers on CUDA: y = x W^T with fused epilogues, as plain launches over device pointers.
//
// Every launch is asynchronous on its stream, allocates nothing and can be captured in a graph. Kernels split K over
// the blocks of a cluster and add the parts up through distributed shared memory, so none of them needs a workspace,
// and results do not depend on the order in which blocks run.
//
// Weights are held once, in the layout of their format:
// - F16, BF16: rows of packed_linear_stride(k) elements (k rounded up to 16 bytes, zeros behind k), as cuBLAS reads
// them.
// - quantized: units of 16 rows x 256 columns in the order of the tensor cores' fragments (packed_unit.cuh), the same
//   bits as in the file; n is rounded up to 16 rows and k to 256 columns.
// Gate and up projections become one matrix whose rows alternate in groups of kGateUpGroup: 8 of gate, 8 of up, ...
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace millrace {

inline constexpr int64_t kGateUpGroup = 8;

// What the estimates need to know of a device; bandwidth and matrix rate as measured.
struct CudaLimits {
  int sms = 132;
  int capability = 90;  // 10 * major + minor
  double bytes_per_us = 4.3e6;
  double flops_per_us = 7.5e8;  // 16-bit matrix products
};

struct CudaLinearProblem {
  DType format = DType::BF16;   // of the weights
  DType x = DType::BF16;        // BF16 or F16; equal to the format of plain weights, BF16 for quantized ones
  DType y = DType::BF16;        // BF16, F16 or F32
  int64_t n = 0, k = 0, m = 0;  // x [m, k], packed weights [n, k], y [m, n] ([m, n / 2] with gate_up)
  bool accumulate = false;      // y += rather than y =
  bool gate_up = false;         // y = silu(gate) * up, of rows interleaved by the packer

  friend bool operator==(const CudaLinearProblem&, const CudaLinearProblem&) = default;
};

// Half a norm, for the layer in front of it: y, which it adds to, is also stored times the norm's weights, in the
// problem's type of x, beside the sums of squares of every kNormPart of its columns.
inline constexpr int64_t kNormPart = 16;
struct CudaNormAhead {
  const float* weights = nullptr;  // [n]; null: no norm follows that is shared
  void* scaled = nullptr;          // [m, n]
  int64_t stride = 0;
  float* squares = nullptr;  // [m][n / kNormPart]
};

struct CudaLinearArgs {
  const void* x = nullptr;  // rows of x_stride elements; 16-byte aligned, stride a multiple of 8
  int64_t x_stride = 0;
  const void* weights = nullptr;  // as packed by pack_linear
  const float* bias = nullptr;    // [n] in the order of the packed rows, or null
  void* y = nullptr;
  int64_t y_stride = 0;
  // [m] or null: the sum of squares of each row of y is added (atomically) to what is there, for the norm that follows.
  float* sum_squares = nullptr;
  // [k] or null: x is f32, and its RMS norm with these weights, rounded to the problem's type of x, is what is
  // multiplied. For kernels that take a norm along.
  const float* norm = nullptr;
  float epsilon = 0;
  CudaNormAhead ahead;
  // The other half, for the layer behind the norm: x is what the layer before it scaled, [m][k / kNormPart] what it
  // left of the squares, and every row of the product is divided by their root mean. Null: x is taken as it is.
  const float* squares = nullptr;
};

struct CudaStep {
  cudaStream_t stream = nullptr;
  // Programmatic dependent launch: start while the kernel before this one drains. Weights are prefetched, then the
  // kernel waits for its predecessor before it touches x or y. Every kernel in such a chain must execute that wait.
  // Only where the capability is 90: other code has no such wait.
  bool overlap = false;
};

struct CudaLinearKernel {
  std::string_view name;
  bool (*can_run)(const CudaLinearProblem&, const CudaLimits&);
  double (*estimate_us)(const CudaLinearProblem&, const CudaLimits&);
  cudaError_t (*run)(const CudaLinearProblem&, const CudaLinearArgs&, const CudaLimits&, const CudaStep&);
  bool (*takes_norm)(const CudaLinearProblem&, const CudaLimits&) = nullptr;  // null: never
  // Whether it does either half of a norm that stands between two linear layers: `ahead` and `squares` above.
  bool (*splits_norm)(const CudaLinearProblem&, const CudaLimits&) = nullptr;  // null: never
};

// Every kernel; for any problem with x aligned as above at least one can run, unless the format is Q2_K or Q3_K (pack
// those as BF16: pack_linear converts).
std::span<const CudaLinearKernel> cuda_linear_kernels();

// Where the rows of one part of a matrix go: q, k and v follow each other (first = rows before, step = kGateUpGroup);
// gate has first = 0 and up first = kGateUpGroup, both with step = 2 * kGateUpGroup.
struct RowPlacement {
  int64_t first = 0;
  int64_t step = kGateUpGroup;  // packed row of source row r: first + r / kGateUpGroup * step + r % kGateUpGroup
};

int64_t packed_linear_stride(int64_t k);                         // elements, plain weights
size_t packed_linear_bytes(DType format, int64_t n, int64_t k);  // n: all rows of all parts

// The format that weights of a file's format are packed as for x of the given type: plain ones become x's type, Q2_K
// and Q3_K become BF16, the others keep their bits.
DType packed_linear_format(DType source, DType x);

// Packs `rows` rows of k elements, given as a file holds them (device memory, 2-byte aligned), into a matrix of n rows
// in all. A matrix must be cleared (cudaMemsetAsync to 0) before its first part is packed: padding stays zero.
cudaError_t pack_linear(DType source, const void* src, int64_t rows, DType packed, int64_t n, int64_t k,
                        RowPlacement placement, void* dst, cudaStream_t stream);

// Quantized packed weights as plain BF16 rows [rows, k] (stride packed_linear_stride(k)) from row `first` on (a
// multiple of 16), for a full GEMM over many rows of x.
cudaError_t unpack_linear(DType packed, const void* weights, int64_t n, int64_t k, int64_t first, int64_t rows,
                          void* dst, cudaStream_t stream);

}  // namespace millrace
