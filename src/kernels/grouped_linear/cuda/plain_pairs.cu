// 16-bit weights for one to a few tokens: each warp multiplies whole rows of a pair's matrix and streams them at the
// memory's bandwidth. With `sum` a warp owns a column of a row of y and takes the row's pairs in order, so that no
// second kernel adds them up.
#include "hardware/cuda/check.h"
#include "kernels/cuda/cost.h"
#include "kernels/grouped_linear/cuda/grouped.cuh"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/packed.h"

namespace millrace {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kStep = 256;  // elements of a row that a warp loads at once
constexpr int kMostShared = 96 * 1024;

template <class T>
__device__ __forceinline__ float dot_eight(uint4 a, uint4 b, float sum) {
  const uint32_t from_a[4] = {a.x, a.y, a.z, a.w}, from_b[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = unpack2<T>(from_a[i]), v = unpack2<T>(from_b[i]);
    sum = fmaf(u.x, v.x, sum);
    sum = fmaf(u.y, v.y, sum);
  }
  return sum;
}

// The lane's part of row r times x[r], which lies in shared memory and has zeros up to a multiple of kSteps * kStep. A
// row that is not live is not read.
template <class T, int kRows, int kSteps>
__device__ __forceinline__ void multiply_rows(const T* const (&rows)[kRows], const bool (&live)[kRows],
                                              const T* const (&x)[kRows], int k, float (&sums)[kRows]) {
  const uint64_t policy = evict_first_policy();
#pragma unroll
  for (float& sum : sums) sum = 0;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) % 32 * 8; first < k; first += kSteps * kStep) {
    uint4 weights[kRows][kSteps];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int at = first + s * kStep;
        weights[r][s] = load_stream_if(rows[r] + at, live[r] && at < k, policy);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint4 eight = *reinterpret_cast<const uint4*>(x[r] + first + s * kStep);
        sums[r] = dot_eight<T>(weights[r][s], eight, sums[r]);
      }
    }
  }
}

// Copies `count` rows of x from row `first` on into shared memory, each padded with zeros to `padded` elements.
template <class T>
__device__ __forceinline__ void stage_x(const GroupedParams& p, int first, int count, int padded, T* to) {
  for (int i = static_cast<int>(threadIdx.x) * 8; i < count * padded; i += kThreads * 8) {
    const int row = i / padded, at = i % padded;
    const T* from = reinterpret_cast<const T*>(p.x) + (first + row) * p.x_stride + at;
    *reinterpret_cast<uint4*>(to + i) = load_shared_input_if(from, at < p.k);
  }
}

// Block (i, j): outputs from j * kWarps * kEach on of pair order[i]. Pairs of one group are neighbours, so that its
// rows come from the cache after the first read.
template <class T, bool kGated>
__global__ void __launch_bounds__(kThreads, 3) multiply_pairs(const __grid_constant__ GroupedParams p, int64_t stride) {
  constexpr int kRows = 2, kSteps = 4, kEach = kGated ? 1 : kRows;  // kEach: outputs of a warp
  extern __shared__ __align__(16) uint8_t shared[];
  T* x = reinterpret_cast<T*>(shared);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int pair = p.order[blockIdx.x], group = p.chosen[pair];
  const int padded = (p.k + kSteps * kStep - 1) / (kSteps * kStep) * (kSteps * kStep);
  stage_x(p, p.x_row(pair), 1, padded, x);
  __syncthreads();
  const int first = (static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32) * kEach;
  if (first >= p.outputs) return;
  const T* matrix = reinterpret_cast<const T*>(p.matrix(group));
  const bool live[kRows] = {true, kGated || first + 1 < p.outputs};
  const int second = kGated ? p.half + first : first + 1;
  const T* const rows[kRows] = {matrix + first * stride, matrix + (live[1] ? second : first) * stride};
  const T* const xs[kRows] = {x, x};
  float sums[kRows];
  multiply_rows<T, kRows, kSteps>(rows, live, xs, p.k, sums);
  sums[0] = warp_sum(sums[0]);
  sums[1] = warp_sum(sums[1]);
  if (threadIdx.x % 32 != 0) return;
  store_pair(p, pair, group, first, sums[0], sums[1]);
  if (!kGated && live[1]) store_pair(p, pair, group, first + 1, sums[1], 0);
}

// Block (i, j): columns from j * kWarps on of row i of y.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) sum_pairs(const __grid_constant__ GroupedParams p, int64_t stride) {
  constexpr int kRows = 4, kSteps = 3;
  extern __shared__ __align__(16) uint8_t shared[];
  T* x = reinterpret_cast<T*>(shared);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int row = static_cast<int>(blockIdx.x);
  const int padded = (p.k + kSteps * kStep - 1) / (kSteps * kStep) * (kSteps * kStep);
  stage_x(p, row * p.per_row, p.per_row, padded, x);
  __syncthreads();
  const int column = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (column >= p.outputs) return;
  float total = 0, biases = 0;
#pragma unroll 1
  for (int first = 0; first < p.per_row; first += kRows) {
    const T *rows[kRows], *xs[kRows];
    bool live[kRows];
    float weights[kRows], sums[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      live[r] = first + r < p.per_row;
      const int choice = live[r] ? first + r : first, pair = row * p.per_row + choice, group = p.chosen[pair];
      rows[r] = reinterpret_cast<const T*>(p.matrix(group)) + column * stride;
      xs[r] = x + choice * padded;
      weights[r] = live[r] ? p.pair_weights[pair] : 0;
      if (p.bias != nullptr && live[r]) biases += weights[r] * p.bias[static_cast<int64_t>(group) * p.n + column];
    }
    multiply_rows<T, kRows, kSteps>(rows, live, xs, p.k, sums);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (live[r]) total = fmaf(weights[r], sums[r], total);
    }
  }
  total = warp_sum(total);
  if (threadIdx.x % 32 == 0) p.y.set(row, column, p.y.get(row, column) + (total + biases));
}

constexpr int64_t kPairPad = 4 * kStep, kSumPad = 3 * kStep;

int64_t shared_bytes(int64_t k, int64_t per_row, bool sum) {
  return sum ? per_row * round_up(k, kSumPad) * 2 : round_up(k, kPairPad) * 2;
}

class PlainPairs final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "cuda_pairs"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && is_plain_grouped(p) && p.k % 8 == 0 &&
           shared_bytes(p.k, p.per_row, p.sum) <= kMostShared;
  }
  // Each pair reads its whole matrix, the second and later ones of a group from the cache.
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double each = 2.0 * double(p.n) * double(p.k), active = p.expected_active();
    const double again = (double(p.pairs()) - active) * 0.4;
    return gpu_us(each * (active + again), hardware, 0.8);
  }
  void run(const Args& a, const Executor& executor) const override {
    check_cuda(a.weights->format == DType::BF16 ? start<__nv_bfloat16>(a, executor) : start<__half>(a, executor),
               "starting a grouped linear layer");
  }

 private:
  template <class T>
  static cudaError_t start(const Args& a, const Executor& executor) {
    const GroupedParams params = grouped_params(a);
    if (params.pairs == 0) return cudaSuccess;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const int64_t stride = packed_linear_stride(params.k);
    LaunchShape shape;
    shape.threads = kThreads;
    shape.shared_bytes = static_cast<size_t>(shared_bytes(params.k, params.per_row, a.sum));
    const int each = a.sum || a.gated ? kWarps : 2 * kWarps;
    shape.grid = dim3(static_cast<unsigned>(a.sum ? a.routing.rows : params.pairs),
                      static_cast<unsigned>(ceil_div(params.outputs, each)));
    if (a.sum) return launch_kernel(sum_pairs<T>, shape, step, params, stride);
    return a.gated ? launch_kernel(multiply_pairs<T, true>, shape, step, params, stride)
                   : launch_kernel(multiply_pairs<T, false>, shape, step, params, stride);
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_pairs() {
  static const PlainPairs kernel;
  return &kernel;
}

}  // namespace millrace
