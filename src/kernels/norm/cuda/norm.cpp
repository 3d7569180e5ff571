#include "kernels/norm/norm.h"
#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/norm/cuda/launch.h"

namespace millrace {
namespace {

class CudaNorm final : public Kernel<NormOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(6.0 * double(p.rows * p.cols), hardware);
  }
  void run(const Args& a, const Executor& executor) const override {
    CudaNormArgs args;
    args.x = cuda_matrix(a.x);
    args.out = cuda_matrix(a.out);
    args.weight = a.weight;
    args.bias = a.bias;
    args.layer = a.kind == NormKind::Layer;
    args.epsilon = a.epsilon;
    args.rows = static_cast<int>(a.x.rows);
    args.cols = static_cast<int>(a.x.cols);
    args.groups = a.groups;
    args.accumulate = a.accumulate;
    args.weights_per_group = a.weights_per_group;
    args.second_weight = a.second_weight;
    args.second_from = a.second_from;
    check_launch(launch_cuda_norm(args, cuda_launch(executor)), "starting a norm");
  }
};

}  // namespace

KernelList<NormOp> NormOp::cuda() {
  static const CudaNorm kernel;
  return {&kernel};
}

}  // namespace millrace
