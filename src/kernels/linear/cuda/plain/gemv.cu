// GEMV on CUDA cores: one to four tokens, bf16 or f16 weights. Each lane reads 16 bytes of a row at a time, several
// rows and steps ahead. x comes from the caches; the rows of a warp share it.
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"

namespace millrace {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kStep = 256;  // elements of a row that a warp reads at once

// Rows per warp: two for one token, four for more, so that x is read less often.
__host__ __device__ constexpr int rows_per_warp(int tokens) { return tokens == 1 ? 2 : 4; }
__host__ __device__ constexpr int steps_ahead(int tokens) { return tokens == 1 ? 4 : 2; }

template <class T, int kTokens>
struct WeightBuffer {
  static constexpr int kRows = rows_per_warp(kTokens), kSteps = steps_ahead(kTokens);
  uint4 at[kSteps][kRows];

  __device__ __forceinline__ void load(const T* const (&rows)[kRows], int k, int end) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        at[s][r] = k + s * kStep < end ? load_stream(rows[r] + k + s * kStep) : uint4{0, 0, 0, 0};
      }
    }
  }
};

template <class T>
__device__ __forceinline__ void to_floats(uint4 v, float (&f)[8]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = unpack2<T>(words[i]);
    f[2 * i] = two.x;
    f[2 * i + 1] = two.y;
  }
}

template <class T, int kTokens>
__device__ __forceinline__ void multiply(const WeightBuffer<T, kTokens>& w, const T* x, int64_t x_stride, int k,
                                         int end, float (&sum)[rows_per_warp(kTokens)][kTokens]) {
  constexpr int kRows = rows_per_warp(kTokens);
#pragma unroll
  for (int s = 0; s < steps_ahead(kTokens); ++s) {
    if (k + s * kStep >= end) return;
    float xs[kTokens][8];
#pragma unroll
    for (int m = 0; m < kTokens; ++m) to_floats<T>(load_shared_input(x + m * x_stride + k + s * kStep), xs[m]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float ws[8];
      to_floats<T>(w.at[s][r], ws);
#pragma unroll
      for (int m = 0; m < kTokens; ++m) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[r][m] = fmaf(ws[i], xs[m][i], sum[r][m]);
      }
    }
  }
}

template <class T, int kTokens>
__global__ void __launch_bounds__(kThreads, 2) gemv(const T* weights, int64_t stride, const T* x, int64_t x_stride,
                                                    int k_split, int k, int splits, LinearOutput out) {
  constexpr int kRows = rows_per_warp(kTokens), kTiles = kRows * kWarps / kTileRows;
  constexpr int kAdvance = kStep * steps_ahead(kTokens);
  __shared__ alignas(16) float partials[kTiles * kTokens * kTileStride];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = static_cast<int>(blockIdx.x) / splits * kTiles * kTileRows;
  const int begin = static_cast<int>(blockIdx.x) % splits * k_split, end = min(k, begin + k_split);
  let_next_kernel_start();

  const T* rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] = weights + min(first_row + warp * kRows + r, out.n - 1) * stride;
  }
  // Warps start at different positions in K: otherwise rows that are a power of two apart would all hit the same memory
  // channels.
  const int rounds = (end - begin + kAdvance - 1) / kAdvance;
  int round = static_cast<int>((blockIdx.x / splits * kWarps + warp) % max(rounds, 1));
  WeightBuffer<T, kTokens> ahead;
  int at = begin + round * kAdvance + lane * 8;
  ahead.load(rows, at, end);
  wait_for_previous_kernel();
  float sum[kRows][kTokens] = {};
  for (int i = 0; i < rounds; ++i) {
    const WeightBuffer<T, kTokens> now = ahead;
    const int here = at;
    round = round + 1 == rounds ? 0 : round + 1;
    at = begin + round * kAdvance + lane * 8;
    if (i + 1 < rounds) ahead.load(rows, at, end);
    multiply<T, kTokens>(now, x, x_stride, here, end, sum);
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int m = 0; m < kTokens; ++m) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sum[r][m] += __shfl_xor_sync(0xffffffffu, sum[r][m], mask);
      const int row = warp * kRows + r;
      if (lane == 0) partials[(row / kTileRows * kTokens + m) * kTileStride + row % kTileRows] = sum[r][m];
    }
  }
  finish_tiles(partials, 1, kTiles, kTokens, first_row, 0, splits, kThreads, out);
}

int block_rows(int64_t m) { return rows_per_warp(static_cast<int>(m)) * kWarps; }

// Splits K while all blocks still run at once: two fit on a multiprocessor.
int choose_splits(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t blocks = ceil_div(p.n, block_rows(p.m));
  int splits = 1;
  while (has_clusters(limits) && splits < 8 && blocks * splits <= limits.sms && p.k / (2 * splits) >= 2 * kStep) {
    splits *= 2;
  }
  return splits;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.m >= 1 && p.m <= 4 && p.k % 8 == 0 && !has_rows_for_all(p, limits);
}

// A partly filled second wave costs time; so do repeated reads of x for several tokens. On devices with clusters this
// kernel only gets few rows or several tokens.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t blocks = ceil_div(p.n, block_rows(p.m)) * choose_splits(p, limits), slots = 2 * limits.sms;
  const double uneven = blocks > slots && blocks < 2 * slots ? 1.1 : 1.0;
  return stream_us(p, limits, blocks, 2, has_clusters(limits) ? 4.5 : 3.0) * uneven * (p.m > 1 ? 1.12 : 1.0);
}

template <class T, int kTokens>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                   const CudaStep& step) {
  const int splits = choose_splits(p, limits);
  const int k_split = static_cast<int>(round_up(ceil_div(p.k, splits), kStep));
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, block_rows(p.m)) * splits));
  shape.threads = kThreads;
  shape.cluster = splits;
  return launch_kernel(gemv<T, kTokens>, shape, step, static_cast<const T*>(a.weights), packed_linear_stride(p.k),
                       static_cast<const T*>(a.x), a.x_stride, k_split, static_cast<int>(p.k), splits,
                       linear_output(p, a));
}

template <class T>
cudaError_t launch_tokens(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                          const CudaStep& step) {
  switch (p.m) {
    case 1:
      return launch<T, 1>(p, a, limits, step);
    case 2:
      return launch<T, 2>(p, a, limits, step);
    case 3:
      return launch<T, 3>(p, a, limits, step);
    default:
      return launch<T, 4>(p, a, limits, step);
  }
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  return p.format == DType::BF16 ? launch_tokens<__nv_bfloat16>(p, a, limits, step)
                                 : launch_tokens<__half>(p, a, limits, step);
}

}  // namespace

const CudaLinearKernel& gemv_kernel() {
  static constexpr CudaLinearKernel kKernel{"gemv", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
