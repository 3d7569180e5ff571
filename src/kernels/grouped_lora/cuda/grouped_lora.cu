#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/grouped_lora/grouped_lora.h"
#include "kernels/lora/cuda/lora.cuh"

namespace millrace {
namespace {

// Item i is the pair order[i]: neighbours have the same expert, and in a prompt the same adapter.
struct Pairs {
  const LoraWeights* table;
  const int32_t* adapters;
  const int32_t *order, *chosen;
  const float* weights;
  int per_row, first_group, groups;
  bool sum;
  int64_t count;

  __device__ int64_t x_row(int64_t item) const { return sum ? order[item] : order[item] / per_row; }
  __device__ int64_t inner_row(int64_t item) const { return order[item]; }
  __device__ int64_t y_row(int64_t item) const { return order[item]; }
  template <class T>
  __device__ LoraMatrices<T> matrices(int64_t item) const {
    return of_pair<T>(order[item]);
  }
  template <class T>
  __device__ LoraMatrices<T> of_pair(int64_t pair) const {
    const int group = chosen[pair] - first_group;
    if (group < 0 || group >= groups) return {};  // its matrix is elsewhere
    return lora_matrices<T>(table, adapters[pair / per_row], group);
  }
};
using Params = LoraParams<Pairs>;

template <class T, int R>
__global__ void __launch_bounds__(kLoraThreads) expand_pairs(const __grid_constant__ Params p) {
  extern __shared__ float inner[];  // [R][stride]
  allow_dependents();
  wait_for_predecessors();
  expand_lora<T, R>(p, inner, [&](int64_t item, const LoraMatrices<T>&, int j) {
    return p.inner[p.items.inner_row(item) * p.stride + j];
  });
}

// y[row] += the weighted sum of the row's pairs, in the order of its choices. Grid: (columns, rows).
template <class T>
__global__ void __launch_bounds__(kLoraThreads) expand_sum(const __grid_constant__ Params p) {
  extern __shared__ float inner[];  // [stride]
  allow_dependents();
  wait_for_predecessors();
  const int64_t row = blockIdx.y;
  const int column = (static_cast<int>(blockIdx.x) * kLoraThreads + static_cast<int>(threadIdx.x)) * kLoraColumns;
  float total[kLoraColumns] = {};
  bool any = false;
  for (int64_t pair = row * p.items.per_row; pair < (row + 1) * p.items.per_row; ++pair) {
    const LoraMatrices<T> m = p.items.of_pair<T>(pair);
    if (m.w == nullptr) continue;
    __syncthreads();  // the previous pair's values may still be in use
    for (int j = static_cast<int>(threadIdx.x); j < m.w->rank; j += kLoraThreads)
      inner[j] = p.inner[pair * p.stride + j];
    __syncthreads();
    for (int i = 0; i < m.w->parts; ++i) {
      const LoraWeights::Part part = m.w->part[i];
      const LoraColumns columns(part, column);
      if (!columns.any) continue;
      float sums[1][kLoraColumns] = {};
      add_lora_part<T, 1>(part, m.b + part.at, columns, inner, p.stride, 1, sums);
      any = true;
#pragma unroll
      for (int c = 0; c < kLoraColumns; ++c) total[c] += p.items.weights[pair] * sums[0][c];
    }
  }
  if (!any) return;
#pragma unroll
  for (int c = 0; c < kLoraColumns; ++c) {
    if (column + c < p.y.cols) p.y.set(row, column + c, p.y.get(row, column + c) + total[c]);
  }
}

template <class T, int R>
void launch(const Params& params, int64_t rows, const Executor& executor) {
  const auto blocks = static_cast<unsigned>((params.items.count + R - 1) / R),
             columns = lora_column_blocks(params.y.cols);
  const CudaLaunch where = cuda_launch(executor);
  const size_t shared = static_cast<size_t>(params.stride) * sizeof(float);
  const auto check = [](CudaError error) { check_launch(error, "starting grouped lora"); };
  check(launch_kernel(lora_shrink<T, R, Pairs>, dim3(blocks, kLoraBlocksOfDots), kLoraThreads, 0, where, params));
  if (params.items.sum)
    return check(
        launch_kernel(expand_sum<T>, dim3(columns, static_cast<unsigned>(rows)), kLoraThreads, shared, where, params));
  check(launch_kernel(expand_pairs<T, R>, dim3(columns, blocks), kLoraThreads, R * shared, where, params));
}

class CudaGroupedLora final : public Kernel<GroupedLoraOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return 2 * gpu_us(double(p.pairs() * (p.n + p.k)) * 16, hardware);  // of rank 16
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return static_cast<size_t>(p.pairs() * p.most_rank()) * sizeof(float);
  }
  void run(const Args& a, const Executor& executor) const override {
    const Routing& r = a.routing;
    if (r.rows == 0) return;
    const Params params{.items = {a.table, a.adapters, r.order, r.chosen, r.weights, static_cast<int>(r.per_row),
                                  static_cast<int>(r.first), static_cast<int>(r.groups), a.sum, r.pairs()},
                        .x = a.x,
                        .y = a.y,
                        .inner = reinterpret_cast<float*>(executor.workspace),
                        .stride = a.parts * LoraWeights::kMostRank,
                        .k = a.x.cols,
                        .scale = 1,
                        .wide = lora_rows_are_wide(a.x, a.format)};
    with_type(a.format, [&](auto type) {
      using T = decltype(type);
      // Pairs of a decode rarely share matrices. Both sum in the same order.
      r.rows <= 64 ? launch<T, 1>(params, r.rows, executor) : launch<T, kLoraManyItems>(params, r.rows, executor);
    });
  }
};

}  // namespace

KernelList<GroupedLoraOp> GroupedLoraOp::cuda() {
  static const CudaGroupedLora kernel;
  return {&kernel};
}

}  // namespace millrace
