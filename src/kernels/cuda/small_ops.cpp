// The launches of the small ops as kernels of the dataflow.
#include "hardware/cuda_device.h"
#include "kernels/activation/cuda/launch.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda_lists.h"
#include "kernels/embedding/cuda/launch.h"
#include "kernels/norm/cuda/launch.h"
#include "kernels/rope/cuda/launch.h"

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
    check_launch(launch_cuda_norm(args, cuda_launch(executor)), "starting a norm");
  }
};

class CudaActivation final : public Kernel<ActivationOp> {
 public:
  std::string_view name() const override { return "cuda"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(6.0 * double(p.rows * p.cols), hardware);
  }
  void run(const Args& a, const Executor& executor) const override {
    CudaActivationArgs args;
    args.kind = a.kind;
    args.x = cuda_matrix(a.x);
    if (a.gate_with != nullptr) args.gate_with = cuda_matrix(*a.gate_with);
    args.out = cuda_matrix(a.out);
    args.rows = static_cast<int>(a.x.rows);
    args.cols = static_cast<int>(a.x.cols);
    check_launch(launch_cuda_activation(args, cuda_launch(executor)), "starting an activation");
  }
};

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

// Tables of plain numbers; quantized ones are cuda_simple's.
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
    // The table is read only; CudaMatrix has no other kind.
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

KernelList<NormOp> cuda_norm_kernels() {
  static const CudaNorm kernel;
  return {&kernel};
}
KernelList<ActivationOp> cuda_activation_kernels() {
  static const CudaActivation kernel;
  return {&kernel};
}
const Kernel<RopeWriteOp>* cuda_rope_write() {
  static const CudaRopeWrite kernel;
  return &kernel;
}
const Kernel<EmbeddingOp>* cuda_gather() {
  static const CudaGather kernel;
  return &kernel;
}

}  // namespace millrace
