#include "kernels/activation/activation.h"
#include "hardware/cuda_device.h"
#include "kernels/activation/cuda/launch.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"

namespace millrace {
namespace {

class CudaActivation final : public Kernel<ActivationOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && (p.gated || p.kind != Activation::ClampedSwiglu);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(6.0 * double(p.rows * p.cols), hardware);
  }
  void run(const Args& a, const Executor& executor) const override {
    CudaActivationArgs args;
    args.kind = a.kind;
    args.x = cuda_matrix(a.x);
    if (a.gate_with != nullptr) args.gate_with = cuda_matrix(*a.gate_with);
    args.out = cuda_matrix(a.out);
    args.clamp = a.clamp;
    args.rows = static_cast<int>(a.x.rows);
    args.cols = static_cast<int>(a.x.cols);
    check_launch(launch_cuda_activation(args, cuda_launch(executor)), "starting an activation");
  }
};

}  // namespace

KernelList<ActivationOp> ActivationOp::cuda() {
  static const CudaActivation kernel;
  return {&kernel};
}

}  // namespace millrace
