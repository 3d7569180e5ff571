#include "kernels/cuda/cost.h"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda_lists.h"

namespace millrace {
namespace {

__device__ float activate(Activation kind, float x) {
  switch (kind) {
    case Activation::Silu:
      return x / (1 + expf(-x));
    case Activation::GeluTanh:  // 0.5 x (1 + tanh u) without the cancellation
      return x / (1 + expf(-2 * 0.7978845608f * (x + 0.044715f * x * x * x)));
    case Activation::GeluErf:
      return 0.5f * x * erfcf(-x * 0.7071067812f);
    case Activation::Relu:
      return x > 0 ? x : 0;
  }
  return x;
}

__global__ void activate_all(Activation kind, GpuMatrix x, GpuMatrix gate, GpuMatrix out) {
  const int64_t row = blockIdx.y;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < x.cols; i += int64_t(gridDim.x) * blockDim.x) {
    const float y = activate(kind, x.get(row, i));
    out.set(row, i, gate.data != nullptr ? y * gate.get(row, i) : y);
  }
}

class CudaActivation final : public Kernel<ActivationOp> {
 public:
  std::string_view name() const override { return "cuda_simple"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(6.0 * double(p.rows * p.cols), hardware, 0.3);
  }
  void run(const Args& a, const Executor& executor) const override {
    if (a.x.rows == 0) return;
    const dim3 grid(static_cast<unsigned>((a.x.cols + 255) / 256), static_cast<unsigned>(a.x.rows));
    activate_all<<<grid, 256, 0, static_cast<cudaStream_t>(executor.queue)>>>(
        a.kind, a.x, a.gate_with != nullptr ? GpuMatrix(*a.gate_with) : GpuMatrix(), a.out);
  }
};

}  // namespace

KernelList<ActivationOp> cuda_activation_kernels() {
  static const CudaActivation kernel;
  return {cuda_activation(), &kernel};
}

}  // namespace millrace
