// F32 weights in the file's rows for few rows of x: routers of mixtures. One block per output and up to eight rows; it
// requests its weights before the preceding kernel ends. For very few rows each block computes the norm in front of the
// layer itself, which costs less than a launch.
#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/linear/cuda/file_rows.h"

namespace millrace {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kRows = 8, kMostNormedRows = 4;
constexpr int kAhead = 2, kStep = kThreads * 8;  // kAhead: vectors of eight weights that a thread holds

struct FewRows {
  const float* weights;
  int n, k, rows;
  CudaMatrix x, y;
  const float* bias;
  bool accumulate;
  const float* norm;  // [k] or null: x is f32, and its RMS norm, rounded to the type of `normed`, is multiplied
  float epsilon;
  CudaMatrix normed;
};

__device__ void request(const FewRows& p, int first, Eight (&w)[kAhead]) {
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    const int at = first + s * kStep;
    w[s] = at < p.k ? widen(p.weights + static_cast<int64_t>(blockIdx.x) * p.k + at) : Eight{};
  }
}

// 1 / rms of each of the block's rows.
__device__ void find_scales(const FewRows& p, int first_row, float (&scales)[kRows]) {
  __shared__ float parts[kWarps][kMostNormedRows];
#pragma unroll
  for (int m = 0; m < kMostNormedRows; ++m) {
    if (first_row + m >= p.rows) break;
    const float* x = static_cast<const float*>(p.x.data) + (first_row + m) * p.x.stride;
    float squares = 0;
    for (int at = static_cast<int>(threadIdx.x) * 8; at < p.k; at += kStep) {
      const Eight v = widen(x + at);
#pragma unroll
      for (const float value : v.at) squares = fmaf(value, value, squares);
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][m] = squares;
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kMostNormedRows; ++m) {
    float squares = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) squares += parts[warp][m];
    scales[m] = rsqrtf(squares / static_cast<float>(p.k) + p.epsilon);
  }
}

// Eight columns of a row of x, or of its norm, which the first output's block also writes.
template <class X, bool kNormed>
__device__ Eight inputs(const FewRows& p, int row, int at, float scale) {
  Eight v = widen(static_cast<const X*>(p.x.data) + row * p.x.stride + at);
  if constexpr (kNormed) {
    const Eight weights = widen(p.norm + at);
    with_device_type(p.normed.dtype, [&](auto type) {
      using Rounded = decltype(type);
#pragma unroll
      for (int e = 0; e < 8; ++e) v.at[e] = to_float(from_float<Rounded>(v.at[e] * scale * weights.at[e]));
      if (blockIdx.x == 0) narrow(static_cast<Rounded*>(p.normed.data) + row * p.normed.stride + at, v);
      return 0;
    });
  }
  return v;
}

template <class X, bool kNormed>
__device__ void add_products(const FewRows& p, int first_row, int first, const Eight (&w)[kAhead],
                             const float (&scales)[kRows], float (&sums)[kRows]) {
#pragma unroll
  for (int m = 0; m < (kNormed ? kMostNormedRows : kRows); ++m) {
    if (first_row + m >= p.rows) break;
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      const int at = first + s * kStep;
      if (at >= p.k) break;
      const Eight v = inputs<X, kNormed>(p, first_row + m, at, scales[m]);
#pragma unroll
      for (int e = 0; e < 8; ++e) sums[m] = fmaf(w[s].at[e], v.at[e], sums[m]);
    }
  }
}

// Grid: (output, rows / kRows).
template <bool kNormed>
__global__ void __launch_bounds__(kThreads) multiply_few_rows(const __grid_constant__ FewRows p) {
  __shared__ float parts[kWarps][kRows];
  const int first = static_cast<int>(threadIdx.x) * 8, first_row = static_cast<int>(blockIdx.y) * kRows;
  Eight w[kAhead];
  allow_dependents();
  request(p, first, w);
  wait_for_predecessors();
  float scales[kRows] = {}, sums[kRows] = {};
  if constexpr (kNormed) find_scales(p, first_row, scales);
  for (int at = first; at < p.k; at += kAhead * kStep) {
    if constexpr (kNormed) {
      add_products<float, true>(p, first_row, at, w, scales, sums);
    } else {
      with_device_type(p.x.dtype, [&](auto type) {
        add_products<decltype(type), false>(p, first_row, at, w, scales, sums);
        return 0;
      });
    }
    request(p, at + kAhead * kStep, w);
  }
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    const float sum = warp_sum(sums[m]);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][m] = sum;
  }
  __syncthreads();
  const int row = first_row + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= kRows || row >= p.rows) return;
  float y = p.bias != nullptr ? p.bias[blockIdx.x] : 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) y += parts[warp][threadIdx.x];
  with_device_type(p.y.dtype, [&](auto type) {
    auto* to = static_cast<decltype(type)*>(p.y.data) + row * p.y.stride + blockIdx.x;
    *to = from_float<decltype(type)>(p.accumulate ? y + to_float(*to) : y);
    return 0;
  });
}

class F32RowsLinear final : public LinearKernel {
 public:
  std::string_view name() const override { return "cuda_f32_rows"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && p.layout == cuda_rows_layout().name() && p.format == DType::F32 &&
           p.precision == Precision::Fast && !p.gated && p.k % 8 == 0;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(4.0 * double(p.n) * double(p.k), hardware, 0.4) +
           2.0 * double(p.n) * double(p.k) * double(p.m) / (0.1 * hardware.ceilings.f32_gflops) * 1e-3;
  }
  bool takes_along(const Problem& p, const Hardware& hardware) const override {
    return p.m <= kMostNormedRows && can_run(p, hardware);
  }
  void run(const Args& a, const Executor& executor) const override {
    const LinearWeights& w = *a.weights;
    if (!moves_by_eights(cuda_matrix(a.x), w.k)) return cuda_rows_linear()->run(a, executor);
    const FewRows params{reinterpret_cast<const float*>(w.data),
                         static_cast<int>(w.n),
                         static_cast<int>(w.k),
                         static_cast<int>(a.x.rows),
                         cuda_matrix(a.x),
                         cuda_matrix(a.y),
                         a.bias,
                         a.accumulate,
                         a.norm,
                         a.epsilon,
                         cuda_matrix(a.normed)};
    const dim3 grid(static_cast<unsigned>(w.n), static_cast<unsigned>((a.x.rows + kRows - 1) / kRows));
    check_launch(launch_kernel(a.norm != nullptr ? multiply_few_rows<true> : multiply_few_rows<false>, grid, kThreads,
                               0, cuda_launch(executor), params),
                 "starting a linear layer");
  }
};

}  // namespace

const LinearKernel* cuda_f32_rows_linear() {
  static const F32RowsLinear kernel;
  return &kernel;
}

}  // namespace millrace
