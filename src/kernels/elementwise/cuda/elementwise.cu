#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/elementwise/elementwise.h"

namespace millrace {
namespace {

struct Params {
  Elementwise kind;
  GpuMatrix a, b, out;
  float factor;
  const int32_t* ids;
  int32_t period;
};

__global__ void elementwise(Params p) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t row = blockIdx.y;
  const int64_t from = p.kind == Elementwise::Gather ? p.ids[row] : row;
  float of_row = 1;
  if (p.kind == Elementwise::ScaleByPosition) of_row = 1 + p.factor * log1pf(float(p.ids[row] / p.period));
  if (p.kind == Elementwise::ScaleRowsBySigmoid) of_row = 1 / (1 + expf(-p.b.get(row, 0)));
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.out.cols;
       i += int64_t(gridDim.x) * blockDim.x) {
    float x = p.a.get(from, i);
    if (p.kind == Elementwise::Add) x += p.b.get(row, i);
    if (p.kind == Elementwise::Multiply) x *= p.b.get(row, i);
    if (p.kind == Elementwise::Scale) x *= p.factor;
    if (p.kind == Elementwise::ScaleByPosition || p.kind == Elementwise::ScaleRowsBySigmoid) x *= of_row;
    if (p.kind == Elementwise::ScaleBySigmoid) x /= 1 + expf(-p.b.get(row, i));
    if (p.kind == Elementwise::Clamp) x = fminf(fmaxf(x, -p.factor), p.factor);
    if (p.kind == Elementwise::Softcap) x = p.factor * tanhf(x / p.factor);
    p.out.set(row, i, x);
  }
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
    const dim3 grid(static_cast<unsigned>((a.out.cols + 255) / 256), static_cast<unsigned>(a.out.rows));
    const Params params{a.kind, a.a, a.b, a.out, a.factor, a.ids.data(), a.period};
    check_launch(launch_kernel(elementwise, grid, 256, 0, cuda_launch(executor), params), "starting an elementwise op");
  }
};

}  // namespace

KernelList<ElementwiseOp> ElementwiseOp::cuda() {
  static const CudaElementwise kernel;
  return {&kernel};
}

}  // namespace millrace
