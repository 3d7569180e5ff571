#include "base/rounding.h"
#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/elementwise/elementwise.h"

namespace millrace {
namespace {

constexpr int kThreads = 128;

struct Params {
  Elementwise kind;
  CudaMatrix a, b, out;
  int cols;
  float factor;
  const int32_t* ids;
  int32_t period;
};

__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// One thread for eight columns of a row. Rows are grid.x, which has no practical limit.
template <bool kWide>
__global__ void __launch_bounds__(kThreads) elementwise(const __grid_constant__ Params p) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t row = blockIdx.x;
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 8, count = min(8, p.cols - column);
  if (count <= 0) return;
  const int64_t from = p.kind == Elementwise::Gather ? p.ids[row] : row;
  Eight x = load_eight<kWide>(p.a, from * p.a.stride + column, count);
  const auto each = [&](auto f) {
#pragma unroll
    for (float& value : x.at) value = f(value);
  };
  const auto with_b = [&](auto f) {
    const Eight b = load_eight<kWide>(p.b, row * p.b.stride + column, count);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.at[i] = f(x.at[i], b.at[i]);
  };
  const auto times = [&](float factor) { each([=](float v) { return v * factor; }); };
  switch (p.kind) {
    case Elementwise::Add:
      with_b([](float v, float b) { return v + b; });
      break;
    case Elementwise::Multiply:
      with_b([](float v, float b) { return v * b; });
      break;
    case Elementwise::ScaleBySigmoid:
      with_b([](float v, float b) { return v * sigmoid(b); });
      break;
    case Elementwise::Scale:
      times(p.factor);
      break;
    case Elementwise::ScaleByPosition:
      times(1 + p.factor * log1pf(float(p.ids[row] / p.period)));
      break;
    case Elementwise::ScaleRowsBySigmoid:
      times(sigmoid(load_eight<false>(p.b, row * p.b.stride, 1).at[0]));
      break;
    case Elementwise::Clamp:
      each([&](float v) { return fminf(fmaxf(v, -p.factor), p.factor); });
      break;
    case Elementwise::Softcap:
      each([&](float v) { return p.factor * tanhf(v / p.factor); });
      break;
    case Elementwise::Gather:
      break;
  }
  store_eight<kWide>(p.out, row * p.out.stride + column, x, count);
}

class CudaElementwise final : public Kernel<ElementwiseOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(12.0 * double(p.rows * p.cols), hardware, 0.5);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.out.rows == 0) return;
    const auto columns = static_cast<int>(a.out.cols);
    const Params params{a.kind,  cuda_matrix(a.a), cuda_matrix(a.b), cuda_matrix(a.out),
                        columns, a.factor,         a.ids.data(),     a.period};
    const bool by_columns = a.b.cols == a.out.cols;  // a column for all of them is read alone
    const bool wide = moves_by_eights(params.a, columns) && moves_by_eights(params.out, columns) &&
                      (!by_columns || moves_by_eights(params.b, columns));
    const dim3 grid(static_cast<unsigned>(a.out.rows), static_cast<unsigned>(ceil_div(columns, 8 * kThreads)));
    check_launch(
        launch_kernel(wide ? elementwise<true> : elementwise<false>, grid, kThreads, 0, cuda_launch(executor), params),
        "starting an elementwise op");
  }
};

}  // namespace

KernelList<ElementwiseOp> ElementwiseOp::cuda() {
  static const CudaElementwise kernel;
  return {&kernel};
}

}  // namespace millrace
