// What follows a GEMM that has no such epilogue: silu(gate) * up, biases, the limit of f16. The data of a prompt is far
// larger than the cache, so the kernels are bound by memory: each thread keeps several loads in flight.
#include "kernels/cuda/convert.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/linear/cuda/file_rows.h"

namespace millrace {
namespace {

constexpr int kGroup = 8;  // 16 bytes of gate, then 16 bytes of up
constexpr int kThreads = 128;
constexpr int kEach = 4;  // groups per thread

// cuBLASLt produces infinity beyond the range of f16. Saturate instead: infinity times zero would be NaN.
__device__ float inside_range(__nv_bfloat16 x) { return to_float(x); }
__device__ float inside_range(__half x) { return within_half(to_float(x)); }

template <class T>
__device__ uint4 gated(const uint4& gates, const uint4& ups) {
  const auto& gate = reinterpret_cast<const Vector<T, kGroup>&>(gates);
  const auto& up = reinterpret_cast<const Vector<T, kGroup>&>(ups);
  Vector<T, kGroup> product;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const float x = inside_range(gate.at[i]);
    product.at[i] = from_float<T>(__fdividef(x, 1 + __expf(-x)) * inside_range(up.at[i]));
  }
  return reinterpret_cast<const uint4&>(product);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gate(const uint4* __restrict__ gate_up, uint4* __restrict__ out, int groups, int64_t stride) {
  const int64_t row = blockIdx.y;
  const int first = static_cast<int>(blockIdx.x) * kThreads * kEach + static_cast<int>(threadIdx.x);
  const uint4* from = gate_up + row * groups * 2;
  uint4 gates[kEach], ups[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int group = min(first + i * kThreads, groups - 1);
    gates[i] = __ldcs(from + group * 2);
    ups[i] = __ldcs(from + group * 2 + 1);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int group = first + i * kThreads;
    if (group < groups) out[row * stride + group] = gated<T>(gates[i], ups[i]);
  }
}

constexpr int kBiasRows = 4;  // of a thread, which has eight columns

template <bool kWide>
__global__ void __launch_bounds__(kThreads) add_bias(CudaMatrix y, int rows, int cols, const float* bias) {
  const int column = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * 8;
  const int count = min(8, cols - column), first = static_cast<int>(blockIdx.y) * kBiasRows;
  if (count <= 0) return;
  Eight biases, sums[kBiasRows];
#pragma unroll
  for (int i = 0; i < 8; ++i) biases.at[i] = i < count ? bias[column + i] : 0;
#pragma unroll
  for (int r = 0; r < kBiasRows; ++r)
    sums[r] = load_eight<kWide>(y, min(first + r, rows - 1) * y.stride + column, count);
#pragma unroll
  for (int r = 0; r < kBiasRows; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[r].at[i] += biases.at[i];
    if (first + r < rows) store_eight<kWide>(y, (first + r) * y.stride + column, sums[r], count);
  }
}

// Reads all elements, but writes only infinite ones.
__global__ void __launch_bounds__(kThreads) limit(__half* y, int cols, int64_t stride, bool by_eights) {
  __half* row = y + blockIdx.y * stride;
  const int first = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * kGroup;
  const int count = min(kGroup, cols - first);
  if (count <= 0) return;
  Vector<__half, kGroup> x;
  if (by_eights) {
    x = *reinterpret_cast<const Vector<__half, kGroup>*>(row + first);
  } else {
    for (int i = 0; i < count; ++i) x.at[i] = row[first + i];
  }
  for (int i = 0; i < count; ++i) {
    if (__hisinf(x.at[i]) != 0) row[first + i] = from_float<__half>(to_float(x.at[i]));
  }
}

}  // namespace

void cuda_add_bias(const Matrix& y, const float* bias, void* queue) {
  const int rows = static_cast<int>(y.rows), cols = static_cast<int>(y.cols);
  const dim3 grid(static_cast<unsigned>((cols + kThreads * 8 - 1) / (kThreads * 8)),
                  static_cast<unsigned>((rows + kBiasRows - 1) / kBiasRows));
  const CudaMatrix m = cuda_matrix(y);
  const auto kernel = moves_by_eights(m, cols) ? add_bias<true> : add_bias<false>;
  kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(m, rows, cols, bias);
}

void cuda_limit(const Matrix& y, void* queue) {
  const int cols = static_cast<int>(y.cols);
  const bool by_eights = cols % kGroup == 0 && y.stride % kGroup == 0 && reinterpret_cast<uintptr_t>(y.data) % 16 == 0;
  const dim3 grid(static_cast<unsigned>((cols + kThreads * kGroup - 1) / (kThreads * kGroup)),
                  static_cast<unsigned>(y.rows));
  limit<<<grid, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(reinterpret_cast<__half*>(y.data), cols, y.stride,
                                                                 by_eights);
}

void cuda_gate(const void* gate_up, const Matrix& out, void* queue) {
  const int groups = static_cast<int>(out.cols / kGroup);
  const dim3 grid(static_cast<unsigned>((groups + kThreads * kEach - 1) / (kThreads * kEach)),
                  static_cast<unsigned>(out.rows));
  const auto launch = [&](auto kernel) {
    kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(
        static_cast<const uint4*>(gate_up), reinterpret_cast<uint4*>(out.data), groups, out.stride / kGroup);
  };
  launch(out.dtype == DType::BF16 ? gate<__nv_bfloat16> : gate<__half>);
}

}  // namespace millrace
