// Linear layers on CUDA: y = x W^T with fused epilogues, as launches on device pointers.
//
// Launches are asynchronous on their stream, allocate nothing and can be captured in a graph. Kernels split K over the
// blocks of a cluster and add the parts through distributed shared memory. They therefore need no workspace, and
// results do not depend on the order in which blocks run.
//
// Weights are stored once, in the layout of their format:
// - F16, BF16: rows of packed_linear_stride(k) elements (k padded with zeros to a multiple of 16 bytes), as cuBLAS
//   reads them.
// - quantized: units of 16 rows x 256 columns in the order of tensor-core fragments (quantized/unit.cuh), with the bits
//   of the file; n is padded to a multiple of 16 and k to a multiple of 256.
// Gate and up projections form one matrix whose rows alternate in groups of kGateUpGroup: 8 of gate, 8 of up, ...
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace millrace {

inline constexpr int64_t kGateUpGroup = 8;

// Device properties for the estimates; bandwidth and matrix rate are measured.
struct CudaLimits {
  int sms = 132;
  int capability = 90;  // 10 * major + minor
  double bytes_per_us = 4.3e6;
  double flops_per_us = 7.5e8;  // 16-bit matrix products
};

struct CudaLinearProblem {
  DType format = DType::BF16;   // of the weights
  DType x = DType::BF16;        // BF16 or F16; equals the format of plain weights, BF16 for quantized weights
  DType y = DType::BF16;        // BF16, F16 or F32
  int64_t n = 0, k = 0, m = 0;  // x [m, k], packed weights [n, k], y [m, n] ([m, n / 2] with gate_up)
  bool accumulate = false;      // y += instead of y =
  bool gate_up = false;         // y = silu(gate) * up, from rows that the packer interleaved

  friend bool operator==(const CudaLinearProblem&, const CudaLinearProblem&) = default;
};

// First half of a norm between two linear layers, computed by the front layer: besides y, it stores y times the norm's
// weights in the type of x, and the sum of squares of each kNormPart columns.
inline constexpr int64_t kNormPart = 16;
struct CudaNormAhead {
  const float* weights = nullptr;  // [n]; null: no norm to share
  void* scaled = nullptr;          // [m, n]
  int64_t stride = 0;
  float* squares = nullptr;  // [m][n / kNormPart]
};

struct CudaLinearArgs {
  const void* x = nullptr;  // rows of x_stride elements; 16-byte aligned, stride a multiple of 8
  int64_t x_stride = 0;
  const void* weights = nullptr;  // as packed by pack_linear
  const float* bias = nullptr;    // [n] in the order of the packed rows; may be null
  void* y = nullptr;
  int64_t y_stride = 0;
  // [m] or null: the kernel adds (atomically) the sum of squares of each row of y, for the norm that follows.
  float* sum_squares = nullptr;
  // [k] or null: x is f32, and the kernel multiplies its RMS norm with these weights, rounded to the problem's type of
  // x. Only for kernels with takes_norm.
  const float* norm = nullptr;
  float epsilon = 0;
  CudaNormAhead ahead;
  // Second half of a shared norm: [m][k / kNormPart] or null. If set, x is CudaNormAhead::scaled of the front layer and
  // these are its sums of squares; the kernel divides each row of the product by their root mean square.
  const float* squares = nullptr;
};

struct CudaStep {
  cudaStream_t stream = nullptr;
  // Programmatic dependent launch: the kernel starts while its predecessor drains, prefetches weights, then waits
  // before it touches x or y. All kernels of such a chain must execute that wait. Only for capability 90; code for
  // other targets has no such wait.
  bool overlap = false;
};

struct CudaLinearKernel {
  std::string_view name;
  bool (*can_run)(const CudaLinearProblem&, const CudaLimits&);
  double (*estimate_us)(const CudaLinearProblem&, const CudaLimits&);
  cudaError_t (*run)(const CudaLinearProblem&, const CudaLinearArgs&, const CudaLimits&, const CudaStep&);
  bool (*takes_norm)(const CudaLinearProblem&, const CudaLimits&) = nullptr;  // null: never
  // Whether the kernel supports both halves of a norm shared by two linear layers: `ahead` and `squares` above.
  bool (*splits_norm)(const CudaLinearProblem&, const CudaLimits&) = nullptr;  // null: never
};

// All kernels. At least one can run any problem with x aligned as above, if the format is one that pack_linear packs
// to: see packed_linear_format.
std::span<const CudaLinearKernel> cuda_linear_kernels();

// Destination of the rows of one part of a matrix. q, k and v are consecutive (first = rows before, step =
// kGateUpGroup). Gate has first = 0, up has first = kGateUpGroup, both with step = 2 * kGateUpGroup.
struct RowPlacement {
  int64_t first = 0;
  int64_t step = kGateUpGroup;  // packed row of source row r: first + r / kGateUpGroup * step + r % kGateUpGroup
};

int64_t packed_linear_stride(int64_t k);                         // elements, plain weights
size_t packed_linear_bytes(DType format, int64_t n, int64_t k);  // n: all rows of all parts

// The packed format of weights for this type of x: plain weights become x's type, Q2_K and Q3_K become BF16, F8_E4M3
// becomes Q8_0, others keep their bits.
DType packed_linear_format(DType source, DType x);

// Packs `rows` rows of k elements in the file's format (device memory, 2-byte aligned) into a matrix of n rows. The
// caller must clear the matrix (cudaMemsetAsync to 0) before it packs the first part: padding must be zero.
cudaError_t pack_linear(DType source, const void* src, int64_t rows, DType packed, int64_t n, int64_t k,
                        RowPlacement placement, void* dst, cudaStream_t stream);

// Dequantizes packed weights to BF16 rows [rows, k] (stride packed_linear_stride(k)) from row `first` on (a multiple of
// 16), for a full GEMM over many rows of x.
cudaError_t unpack_linear(DType packed, const void* weights, int64_t n, int64_t k, int64_t first, int64_t rows,
                          void* dst, cudaStream_t stream);

}  // namespace millrace
