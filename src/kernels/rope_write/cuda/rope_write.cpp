#include "kernels/rope_write/rope_write.h"
#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/rope_write/cuda/launch.h"

namespace millrace {
namespace {

class CudaRopeWrite final : public Kernel<RopeWriteOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    constexpr int kMostDim = 1024;
    return is_gpu(hardware) && p.one_head_size() && is_kv_dtype(p.kv, p.key_dim) && p.key_dim % 8 == 0 &&
           p.key_dim <= kMostDim;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(6.0 * double(p.rows) * (p.heads + 2 * p.kv_heads) * p.key_dim, hardware);
  }
  void run(const Args& a, const Executor& executor) const override {
    CudaRopeWriteArgs args;
    args.style = a.style;
    args.q = cuda_matrix(a.q);
    args.k = cuda_matrix(a.k);
    args.v = cuda_matrix(a.v);
    args.rotary_dim = static_cast<int>(a.angles.cols);
    if (args.rotary_dim > 0) args.angles = a.angles.row<float>(0);
    args.kv = a.kv.dtype;
    args.keys = a.kv.keys;
    args.values = a.kv.values;
    args.heads = a.heads;
    args.kv_heads = a.kv.kv_heads;
    args.head_dim = a.kv.key_dim;
    args.block_size = a.kv.block_size;
    args.row_slots = a.tables.row_slots;
    args.rows = static_cast<int>(a.k.rows);
    check_launch(launch_cuda_rope_write(args, cuda_launch(executor)), "starting rope_write");
  }
};

}  // namespace

const Kernel<RopeWriteOp>* cuda_rope_write() {
  static const CudaRopeWrite kernel;
  return &kernel;
}

}  // namespace millrace
