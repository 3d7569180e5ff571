// Fallback kernel for plain weights: one warp per row of weights, any K, any alignment of x.
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"

namespace millrace {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTokens = 4;  // per block

// A block computes 16 rows for four tokens, a warp two of the rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rows(const T* weights, int64_t stride, const T* x, int64_t x_stride, int k, LinearOutput out) {
  __shared__ alignas(16) float partials[kTokens * kTileStride];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = static_cast<int>(blockIdx.x) * kTileRows, first_token = static_cast<int>(blockIdx.y) * kTokens;
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (int r = warp; r < kTileRows; r += kWarps) {
    const T* w = weights + min(first_row + r, out.n - 1) * stride;
    for (int m = 0; m < kTokens; ++m) {
      const T* token = x + min(first_token + m, out.m - 1) * x_stride;
      float sum = 0;
      for (int i = lane; i < k; i += 32) sum = fmaf(to_float(w[i]), to_float(token[i]), sum);
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
      if (lane == 0) partials[m * kTileStride + r] = sum;
    }
  }
  finish_tiles(partials, 1, 1, kTokens, first_row, first_token, 1, kThreads, out);
}

bool can_run(const CudaLinearProblem& p, const CudaLimits&) {
  return is_plain(p.format) && p.x == p.format && p.m >= 1 && ceil_div(p.m, kTokens) <= 65535;
}

double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const double passes = static_cast<double>(ceil_div(p.m, kTokens));
  return 3 + 3 * passes * stream_us(p, limits, limits.sms, 4, 3);
}

template <class T>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaStep& step) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, kTileRows)), static_cast<unsigned>(ceil_div(p.m, kTokens)));
  shape.threads = kThreads;
  return launch_kernel(rows<T>, shape, step, static_cast<const T*>(a.weights), packed_linear_stride(p.k),
                       static_cast<const T*>(a.x), a.x_stride, static_cast<int>(p.k), linear_output(p, a));
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits&, const CudaStep& step) {
  return p.format == DType::BF16 ? launch<__nv_bfloat16>(p, a, step) : launch<__half>(p, a, step);
}

}  // namespace

const CudaLinearKernel& rows_kernel() {
  static constexpr CudaLinearKernel kKernel{"rows", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
