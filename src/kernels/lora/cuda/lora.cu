#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/lora/cuda/launch.h"
#include "kernels/lora/cuda/lora.cuh"

namespace millrace {
namespace {

// Every row is an item.
struct Rows {
  const LoraWeights* table;
  const int32_t* adapters;
  const int32_t *ids, *chosen;  // of an embedding: A x is the row of A that the id names; ids null: no embedding
  int64_t count;

  __device__ int64_t x_row(int64_t row) const { return row; }
  __device__ int64_t inner_row(int64_t row) const { return row; }
  __device__ int64_t y_row(int64_t row) const { return row; }
  __device__ int64_t id(int64_t row) const { return ids[row] >= 0 ? ids[row] : max(0, chosen[~ids[row]]); }
  template <class T>
  __device__ LoraMatrices<T> matrices(int64_t row) const {
    return lora_matrices<T>(table, adapters[row], 0);
  }
};

template <class T, int R>
__global__ void __launch_bounds__(kLoraThreads) expand(const __grid_constant__ LoraParams<Rows> p) {
  extern __shared__ float inner[];  // [R][stride]
  allow_dependents();
  wait_for_predecessors();
  expand_lora<T, R>(p, inner, [&](int64_t row, const LoraMatrices<T>& m, int j) {
    return p.items.ids != nullptr ? to_float(m.a[p.items.id(row) * m.w->rank + j]) : p.inner[row * p.stride + j];
  });
}

template <class T, int R>
void launch(const LoraParams<Rows>& params, const Executor& executor) {
  const auto blocks = static_cast<unsigned>((params.items.count + R - 1) / R);
  if (params.items.ids == nullptr) {
    check_launch(launch_kernel(lora_shrink<T, R, Rows>, dim3(blocks, kLoraBlocksOfDots), kLoraThreads, 0,
                               cuda_launch(executor), params),
                 "starting lora");
  }
  const size_t shared = static_cast<size_t>(R * params.stride) * sizeof(float);
  check_launch(launch_kernel(expand<T, R>, dim3(lora_column_blocks(params.y.cols), blocks), kLoraThreads, shared,
                             cuda_launch(executor), params),
               "starting lora");
}

class CudaLora final : public Kernel<LoraOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return 2 * gpu_us(double(p.rows * (p.n + p.k)) * 16, hardware);  // of rank 16
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return static_cast<size_t>(p.rows * p.most_rank()) * sizeof(float);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.y.rows == 0) return;
    const int32_t* ids = a.x.cols == 0 ? a.ids.data() : nullptr;
    const LoraParams<Rows> params{.items = {a.table, a.adapters, ids, a.chosen, a.y.rows},
                                  .x = a.x,
                                  .y = a.y,
                                  .inner = reinterpret_cast<float*>(executor.workspace),
                                  .stride = a.parts * LoraWeights::kMostRank,
                                  .k = a.x.cols,
                                  .scale = a.scale,
                                  .wide = lora_rows_are_wide(a.x, a.format)};
    with_type(a.format, [&](auto type) {
      // Decodes mix adapters; prompts have runs of rows of one adapter. Both sum in the same order.
      using T = decltype(type);
      a.y.rows <= 64 ? launch<T, 1>(params, executor) : launch<T, kLoraManyItems>(params, executor);
    });
  }
};

}  // namespace

const Kernel<LoraOp>& cuda_lora_any() {
  static const CudaLora kernel;
  return kernel;
}

KernelList<LoraOp> LoraOp::cuda() { return {&cuda_lora_decode(), &cuda_lora_any()}; }

}  // namespace millrace
