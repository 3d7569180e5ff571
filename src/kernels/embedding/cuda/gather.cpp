#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/embedding/cuda/launch.h"
#include "kernels/embedding/embedding.h"

namespace millrace {
namespace {

// For plain tables; cuda_simple handles quantized ones.
class CudaGather final : public Kernel<EmbeddingOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && !is_quantized(p.format);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(6.0 * double(p.rows * p.cols), hardware);
  }
  void run(const Args& a, const Executor& executor) const override {
    CudaGatherArgs args;
    // CudaMatrix has no const variant; the table is only read.
    args.table = {const_cast<std::byte*>(a.table.data), a.table.dtype, a.table.cols};
    args.ids = a.ids.data();
    args.chosen = a.chosen;
    args.entries = a.table.rows;
    args.scale = a.scale;
    args.accumulate = a.accumulate;
    args.out = cuda_matrix(a.out);
    args.rows = static_cast<int>(a.out.rows);
    args.cols = static_cast<int>(a.out.cols);
    check_launch(launch_cuda_gather(args, cuda_launch(executor)), "starting a look-up");
  }
};

}  // namespace

const Kernel<EmbeddingOp>* cuda_gather() {
  static const CudaGather kernel;
  return &kernel;
}

}  // namespace millrace
