// Simple linear kernel for all formats: one warp per output, which decodes the weights as it reads them. --exact runs
// it, and tests compare the faster kernels with it.
#include "kernels/cuda/cost.h"
#include "kernels/cuda/dequantize.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/linear/cuda/file_rows.h"

namespace millrace {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 8;  // rows of x that share one decoded weight

struct Params {
  const std::byte* weights;
  int64_t row_bytes, n, k;
  GpuMatrix x, y;
  const float* bias;
  bool accumulate;
};

template <DType F>
__global__ void __launch_bounds__(32 * kWarps) multiply(Params p) {
  const int64_t n = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32, first = int64_t(blockIdx.y) * kRows;
  if (n >= p.n) return;
  const int lane = threadIdx.x % 32, rows = static_cast<int>(min(int64_t(kRows), p.x.rows - first));
  const std::byte* row = p.weights + n * p.row_bytes;
  float sums[kRows] = {};
  for (int64_t i = 8 * lane; i < p.k; i += 8 * 32) {
    float w[8];
    Decoder<F>::some(row, i, p.k, w);
    const int count = static_cast<int>(min(int64_t(8), p.k - i));
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      if (m >= rows) break;
      for (int e = 0; e < count; ++e) sums[m] += w[e] * p.x.get(first + m, i + e);
    }
  }
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    if (m >= rows) break;
    float y = warp_sum(sums[m]);
    if (lane != 0) continue;
    if (p.bias != nullptr) y += p.bias[n];
    if (p.accumulate) y += p.y.get(first + m, n);
    p.y.set(first + m, n, y);
  }
}

template <DType F>
__global__ void write_out(const std::byte* weights, int64_t row_bytes, int64_t k, DType dtype, std::byte* to) {
  const int64_t n = blockIdx.x;
  for (int64_t i = 8 * threadIdx.x; i < k; i += 8 * blockDim.x) {
    float w[8];
    Decoder<F>::some(weights + n * row_bytes, i, k, w);
    for (int e = 0; e < 8 && i + e < k; ++e) store(to, dtype, n * k + i + e, w[e]);
  }
}

class CudaRowsLinear final : public LinearKernel {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.layout == cuda_rows_layout().name() && !p.gated;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double weights = double(p.n) * double(row_bytes(p.format, p.k)), passes = double((p.m + kRows - 1) / kRows);
    return gpu_us(weights, hardware, 0.25) +
           2.0 * double(p.n) * double(p.k) * passes * kRows / (0.05 * hardware.ceilings.f32_gflops) * 1e-3;
  }
  void run(const Args& a, const Executor& executor) const override {
    const LinearWeights& w = *a.weights;
    const Params params{w.data,      static_cast<int64_t>(row_bytes(w.format, w.k)), w.n, w.k, a.x, a.y, a.bias,
                        a.accumulate};
    const dim3 grid(static_cast<unsigned>((w.n + kWarps - 1) / kWarps),
                    static_cast<unsigned>((a.x.rows + kRows - 1) / kRows));
    with_format(w.format, [&]<DType F>() {
      multiply<F><<<grid, 32 * kWarps, 0, static_cast<cudaStream_t>(executor.queue)>>>(params);
    });
  }
};

}  // namespace

const LinearKernel* cuda_rows_linear() {
  static const CudaRowsLinear kernel;
  return &kernel;
}

void cuda_write_out(const LinearWeights& w, DType dtype, void* to, void* queue) {
  with_format(w.format, [&]<DType F>() {
    write_out<F><<<static_cast<unsigned>(w.n), 128, 0, static_cast<cudaStream_t>(queue)>>>(
        w.data, static_cast<int64_t>(row_bytes(w.format, w.k)), w.k, dtype, static_cast<std::byte*>(to));
  });
}

}  // namespace millrace
