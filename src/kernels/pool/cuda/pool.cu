#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/pool/pool.h"

namespace millrace {
namespace {

constexpr int kThreads = 128;

struct Params {
  PoolKind kind;
  GpuMatrix x, out;
  const SliceTables::Slice* slices;
};

// Grid: (128 columns, sequence). One thread per column.
__global__ void __launch_bounds__(kThreads) pool(const __grid_constant__ Params p) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= p.x.cols) return;
  const SliceTables::Slice slice = p.slices[blockIdx.y];
  const int64_t first = slice.first_row, last = first + slice.rows - 1;
  float sum = p.x.get(p.kind == PoolKind::Last ? last : first, c);
  if (p.kind == PoolKind::Mean) {
    for (int64_t row = first + 1; row <= last; ++row) sum += p.x.get(row, c);
    sum /= float(slice.rows);
  }
  p.out.set(blockIdx.y, c, sum);
}

class CudaPool final : public Kernel<PoolOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(4.0 * double(p.rows * p.cols), hardware, 0.5);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.sequences.empty()) return;
    const dim3 grid(static_cast<unsigned>((a.x.cols + kThreads - 1) / kThreads),
                    static_cast<unsigned>(a.sequences.size()));
    const Params params{a.kind, a.x, a.out, a.tables.slices};
    check_launch(launch_kernel(pool, grid, kThreads, 0, cuda_launch(executor), params), "starting pool");
  }
};

}  // namespace

KernelList<PoolOp> PoolOp::cuda() {
  static const CudaPool kernel;
  return {&kernel};
}

}  // namespace millrace
