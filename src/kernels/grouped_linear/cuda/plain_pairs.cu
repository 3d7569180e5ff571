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
constexpr int kPairSteps = 4, kSumSteps = 3;
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

// The lane's part of kRows rows of weights, kSteps loads of each in flight. A row that is not live is not read.
template <class T, int kRows, int kSteps>
struct RowsAhead {
  static constexpr int kColumns = kSteps * kStep;
  const T* rows[kRows];
  bool live[kRows];
  int k;
  uint4 weights[kRows][kSteps];

  __device__ __forceinline__ void load(int first) {
    const uint64_t policy = evict_first_policy();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int at = first + s * kStep;
        weights[r][s] = load_stream_if(rows[r] + at, live[r] && at < k, policy);
      }
    }
  }

  // Adds the products with x, which lies in shared memory and has zeros up to a multiple of kColumns. The first
  // kColumns columns were loaded; `x_of_row` is the distance between the x of two rows.
  __device__ __forceinline__ void multiply(const T* x, int x_of_row, float (&sums)[kRows]) {
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll 1
    for (int first = lane_column(); first < k; first += kColumns) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          const uint4 eight = *reinterpret_cast<const uint4*>(x + (live[r] ? r * x_of_row : 0) + first + s * kStep);
          sums[r] = dot_eight<T>(weights[r][s], eight, sums[r]);
        }
      }
      load(first + kColumns);
    }
  }

  static __device__ __forceinline__ int lane_column() { return static_cast<int>(threadIdx.x) % 32 * 8; }
};

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
// rows come from the cache after the first read. The weights are requested before x is staged.
template <class T, bool kGated>
__global__ void __launch_bounds__(kThreads, kGated ? 3 : 2)
    multiply_pairs(const __grid_constant__ GroupedParams p, int64_t stride) {
  constexpr int kRows = 2, kEach = kGated ? 1 : kRows;  // kEach: outputs of a warp
  extern __shared__ __align__(16) uint8_t shared[];
  T* x = reinterpret_cast<T*>(shared);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int pair = p.order != nullptr ? p.order[blockIdx.x] : static_cast<int>(blockIdx.x), group = p.group_of(pair);
  if (group < 0) return;
  const int first = (static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32) * kEach;
  const int second = kGated ? p.half + first : first + 1;
  const T* matrix = reinterpret_cast<const T*>(p.matrix(group));
  RowsAhead<T, kRows, kPairSteps> rows;
  rows.k = p.k;
  rows.live[0] = first < p.outputs;
  rows.live[1] = kGated ? rows.live[0] : second < p.outputs;
  rows.rows[0] = matrix + (rows.live[0] ? first : 0) * stride;
  rows.rows[1] = matrix + (rows.live[1] ? second : 0) * stride;
  rows.load(rows.lane_column());
  stage_x(p, p.x_row(pair), 1, (p.k + rows.kColumns - 1) / rows.kColumns * rows.kColumns, x);
  __syncthreads();
  if (!rows.live[0]) return;
  float sums[kRows];
  rows.multiply(x, 0, sums);
  sums[0] = warp_sum(sums[0]);
  sums[1] = warp_sum(sums[1]);
  if (threadIdx.x % 32 != 0) return;
  store_pair(p, pair, group, first, sums[0], sums[1]);
  if (!kGated && rows.live[1]) store_pair(p, pair, group, first + 1, sums[1], 0);
}

// Block (i, j): columns from j * kWarps on of row i of y.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) sum_pairs(const __grid_constant__ GroupedParams p, int64_t stride) {
  constexpr int kRows = 4;  // pairs at a time
  extern __shared__ __align__(16) uint8_t shared[];
  T* x = reinterpret_cast<T*>(shared);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int row = static_cast<int>(blockIdx.x), first_pair = row * p.per_row;
  const int column = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  RowsAhead<T, kRows, kSumSteps> rows;
  rows.k = p.k;
  const auto load_pairs = [&](int first) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int group = first + r < p.per_row ? p.group_of(first_pair + first + r) : -1;
      rows.live[r] = group >= 0 && column < p.outputs;
      rows.rows[r] = reinterpret_cast<const T*>(p.matrix(max(group, 0))) + (rows.live[r] ? column : 0) * stride;
    }
    rows.load(rows.lane_column());
  };
  load_pairs(0);
  const int padded = (p.k + rows.kColumns - 1) / rows.kColumns * rows.kColumns;
  stage_x(p, first_pair, p.per_row, padded, x);
  __syncthreads();
  if (column >= p.outputs) return;
  float total = 0, biases = 0;
#pragma unroll 1
  for (int first = 0; first < p.per_row; first += kRows) {
    float sums[kRows];
    rows.multiply(x + first * padded, padded, sums);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (!rows.live[r]) continue;
      const int pair = first_pair + first + r;
      const float weight = p.pair_weights[pair];
      total = fmaf(weight, sums[r], total);
      if (p.bias != nullptr) biases += weight * p.bias[static_cast<int64_t>(p.group_of(pair)) * p.n + column];
    }
    if (first + kRows < p.per_row) load_pairs(first + kRows);
  }
  total = warp_sum(total);
  if (threadIdx.x % 32 == 0) p.y.set(row, column, p.y.get(row, column) + (total + biases));
}

constexpr int64_t kPairPad = kPairSteps * kStep, kSumPad = kSumSteps * kStep;

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
    const double again = std::max(0.0, p.expected_pairs() - active) * 0.4;
    return gpu_us(each * (active + again), hardware, 0.8);
  }
  void run(const Args& a, const Executor& executor) const override {
    check_cuda(a.weights->format == DType::BF16 ? start<__nv_bfloat16>(a, executor) : start<__half>(a, executor),
               "starting a grouped linear layer");
  }

 private:
  template <class T>
  static cudaError_t start(const Args& a, const Executor& executor) {
    GroupedParams params = grouped_params(a);
    if (a.routing.rows == 1) params.order = nullptr;  // every pair has its own group
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
