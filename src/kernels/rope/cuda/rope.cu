#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/rope/rope.h"

namespace millrace {
namespace {

struct Params {
  GpuMatrix x, angles;
  int pairs, head_dim, half;  // pairs: of all heads of a row
  bool halves;
};

// One thread per pair; grid.y = rows.
__global__ void rope(Params p) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= p.pairs) return;
  const int pair = i % p.half;
  const int64_t head = int64_t{i / p.half} * p.head_dim;
  const int64_t first = head + (p.halves ? pair : 2 * pair), second = first + (p.halves ? p.half : 1);
  const float a = p.x.get(row, first), b = p.x.get(row, second);
  const float cosine = p.angles.get(row, pair), sine = p.angles.get(row, p.half + pair);
  p.x.set(row, first, a * cosine - b * sine);
  p.x.set(row, second, b * cosine + a * sine);
}

// Only for models with norms between RoPE and attention; others use rope_write or rotate inside attention.
class CudaRope final : public Kernel<RopeOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(4.0 * double(p.rows * p.heads) * p.rotary_dim, hardware);
  }
  void run(const Args& a, const Executor& executor) const override {
    const int half = a.rotary_dim / 2, pairs = a.heads * half;
    if (a.x.rows == 0 || pairs == 0) return;
    const dim3 grid(static_cast<unsigned>((pairs + 127) / 128), static_cast<unsigned>(a.x.rows));
    const Params params{a.x, a.angles, pairs, a.head_dim, half, a.style == RopeStyle::Halves};
    check_launch(launch_kernel(rope, grid, 128, 0, cuda_launch(executor), params), "starting RoPE");
  }
};

}  // namespace

KernelList<RopeOp> RopeOp::cuda() {
  static const CudaRope kernel;
  return {&kernel};
}

}  // namespace millrace
