// F32 weights in the file's rows for few rows of x: routers of mixtures. A block has one output, or four if there are
// many rows, whose x it then reads a quarter as often, and up to eight rows. It requests its weights before the
// preceding kernel ends. For very few rows each block computes the norm in front of the layer itself, which costs less
// than a launch.
#include "base/rounding.h"
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
constexpr int kStep = kThreads * 8;
// With more than kManyRows rows, blocks have kManyOutputs outputs. A row's bits are the same: each sum adds the same
// numbers in the same order.
constexpr int kManyOutputs = 4, kManyRows = 16;

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

// The weights that a thread holds, vectors of eight of each output.
template <int kOutputs>
struct OutputWeights {
  static constexpr int kAhead = kOutputs == 1 ? 2 : 1;
  Eight at[kOutputs][kAhead];

  __device__ void request(const FewRows& p, int first) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const int output = min(static_cast<int>(blockIdx.x) * kOutputs + o, p.n - 1);
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        const int column = first + s * kStep;
        at[o][s] = column < p.k ? widen(p.weights + static_cast<int64_t>(output) * p.k + column) : Eight{};
      }
    }
  }
};

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

// With several outputs, rows beyond the last one repeat it, so that no branch holds up loads; their sums are not
// stored.
template <class X, bool kNormed, int kOutputs>
__device__ __forceinline__ void add_products(const FewRows& p, int first_row, int first,
                                             const OutputWeights<kOutputs>& w, const float (&scales)[kRows],
                                             float (&sums)[kOutputs * kRows]) {
#pragma unroll
  for (int s = 0; s < w.kAhead; ++s) {
    const int at = first + s * kStep;
    if (at >= p.k) break;
#pragma unroll
    for (int m = 0; m < (kNormed ? kMostNormedRows : kRows); ++m) {
      if (kOutputs == 1 && first_row + m >= p.rows) break;
      const Eight v = inputs<X, kNormed>(p, min(first_row + m, p.rows - 1), at, scales[m]);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
        for (int e = 0; e < 8; ++e) sums[o * kRows + m] = fmaf(w.at[o][s].at[e], v.at[e], sums[o * kRows + m]);
      }
    }
  }
}

// Lane i returns the sum of number i over all lanes that differ in the bits below 2 * kHalf, which is a power of two:
// it keeps the half of the numbers that has its own, and sends the other half to the lane that is kHalf apart.
template <int kHalf>
__device__ __forceinline__ float sum_of_lane(const float (&numbers)[2 * kHalf]) {
  const bool upper = (threadIdx.x & kHalf) != 0;
  float kept[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float low = numbers[i], high = numbers[i + kHalf];
    kept[i] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, kHalf);
  }
  if constexpr (kHalf == 1) {
    return kept[0];
  } else {
    return sum_of_lane<kHalf / 2>(kept);
  }
}

// Lane i returns the sum of number i over the lanes of the warp, added in the order of warp_sum().
template <int kCount>
__device__ __forceinline__ float sum_of_lanes(const float (&numbers)[kCount]) {
  if constexpr (kCount == 32) {
    return sum_of_lane<16>(numbers);
  } else {
    float own = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float sum = warp_sum(numbers[i]);
      if (threadIdx.x % 32 == i) own = sum;
    }
    return own;
  }
}

// Grid: (outputs / kOutputs, rows / kRows).
template <bool kNormed, int kOutputs>
__global__ void __launch_bounds__(kThreads) multiply_few_rows(const __grid_constant__ FewRows p) {
  constexpr int kSums = kOutputs * kRows;
  __shared__ float parts[kWarps][kSums];
  const int thread = static_cast<int>(threadIdx.x), first = thread * 8,
            first_row = static_cast<int>(blockIdx.y) * kRows;
  OutputWeights<kOutputs> w;
  allow_dependents();
  w.request(p, first);
  wait_for_predecessors();
  float scales[kRows] = {}, sums[kSums] = {};
  if constexpr (kNormed) find_scales(p, first_row, scales);
  for (int at = first; at < p.k; at += w.kAhead * kStep) {
    if constexpr (kNormed) {
      add_products<float, true>(p, first_row, at, w, scales, sums);
    } else {
      with_device_type(p.x.dtype, [&](auto type) {
        add_products<decltype(type), false>(p, first_row, at, w, scales, sums);
        return 0;
      });
    }
    w.request(p, at + w.kAhead * kStep);
  }
  const float own = sum_of_lanes(sums);
  if (thread % 32 < kSums) parts[thread / 32][thread % 32] = own;
  __syncthreads();
  const int row = first_row + thread % kRows, output = static_cast<int>(blockIdx.x) * kOutputs + thread / kRows;
  if (thread >= kSums || row >= p.rows || output >= p.n) return;
  float y = p.bias != nullptr ? p.bias[output] : 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) y += parts[warp][thread];
  with_device_type(p.y.dtype, [&](auto type) {
    auto* to = static_cast<decltype(type)*>(p.y.data) + row * p.y.stride + output;
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
    const bool many = a.x.rows > kManyRows;
    const int64_t outputs = many ? kManyOutputs : 1;
    const dim3 grid(static_cast<unsigned>(ceil_div(w.n, outputs)), static_cast<unsigned>(ceil_div(a.x.rows, kRows)));
    const auto kernel = a.norm != nullptr ? multiply_few_rows<true, 1>
                        : many            ? multiply_few_rows<false, kManyOutputs>
                                          : multiply_few_rows<false, 1>;
    check_launch(launch_kernel(kernel, grid, kThreads, 0, cuda_launch(executor), params), "starting a linear layer");
  }
};

}  // namespace

const LinearKernel* cuda_f32_rows_linear() {
  static const F32RowsLinear kernel;
  return &kernel;
}

}  // namespace millrace
