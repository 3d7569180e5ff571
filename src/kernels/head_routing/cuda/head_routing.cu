#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/head_routing/head_routing.h"

namespace millrace {
namespace {

constexpr int kThreads = 256;

struct Params {
  int32_t *chosen, *order, *offsets;
  int rows, heads;
};

// One thread per pair.
__global__ void __launch_bounds__(kThreads) route(Params p) {
  allow_dependents();
  wait_for_predecessors();
  const int pair = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (pair <= p.heads) p.offsets[pair] = pair * p.rows;
  if (pair >= p.rows * p.heads) return;
  const int row = pair / p.heads, head = pair % p.heads;
  p.chosen[pair] = head;
  p.order[head * p.rows + row] = pair;
}

class CudaHeadRouting final : public Kernel<HeadRoutingOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(8.0 * double(p.rows * p.heads), hardware);
  }
  void run(const Args& a, const Executor& executor) const override {
    const Routing& r = a.routing;
    if (r.rows == 0) return;
    const Params params{r.chosen, r.order, r.offsets, static_cast<int>(r.rows / r.groups), static_cast<int>(r.groups)};
    const dim3 grid(static_cast<unsigned>(r.rows / kThreads + 1));  // at least rows + 1 threads: offsets has one more
    check_launch(launch_kernel(route, grid, kThreads, 0, cuda_launch(executor), params), "starting head_routing");
  }
};

}  // namespace

KernelList<HeadRoutingOp> HeadRoutingOp::cuda() {
  static const CudaHeadRouting kernel;
  return {&kernel};
}

}  // namespace millrace
