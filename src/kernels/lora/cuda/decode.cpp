#include <algorithm>

#include "base/error.h"
#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/lora/cuda/launch.h"

namespace millrace {
namespace {

// Rows start at multiples of 16 bytes.
bool is_aligned(const Matrix& m) { return m.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.data) % 16 == 0; }

// As many clusters as give each warp one tile of columns.
int splits_of(int64_t columns, int cluster) {
  const int64_t of_cluster = int64_t{kTileColumns} * kDecodeWarps * cluster;
  return static_cast<int>(std::min<int64_t>(kLoraGroup, (columns + of_cluster - 1) / of_cluster));
}

class CudaLoraDecode final : public Kernel<LoraOp> {
 public:
  CudaLoraDecode(std::string_view name, int cluster, const CudaLoraDecode* base)
      : name_(name), cluster_(cluster), base_(base) {}
  std::string_view name() const override { return name_; }
  const Kernel* variant_of(const Problem&, const Hardware&) const override { return base_; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && starts_early(hardware) && p.format != DType::F32 && !p.embedding && !p.invariant &&
           p.rows <= kMostDecodeRows && p.k % 8 == 0;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(double(p.rows * (p.n + p.k)) * 2 * 16, hardware);  // of rank 16
  }
  // For rows that are not aligned.
  size_t workspace_bytes(const Problem& p, const Hardware& hardware) const override {
    return cuda_lora_any().workspace_bytes(p, hardware);
  }
  bool shares_between(const Problem& p, const Hardware& hardware) const override {
    return can_run(p, hardware) && p.format == DType::BF16;
  }
  bool takes_along(const Problem& p, const Hardware& hardware) const override {
    return can_run(p, hardware) && p.n % 16 == 0;
  }

  void run(const Args& a, const Executor& executor) const override {
    if (a.y.rows == 0) return;
    const bool gated = a.feed.data != nullptr;
    if (!is_aligned(a.x)) {
      MR_ASSERT(a.squares == nullptr && !gated);
      return cuda_lora_any().run(a, executor);
    }
    const int64_t rank = a.most_rank > 0 ? a.most_rank : a.parts * LoraWeights::kMostRank;
    const LoraDecodeParams params{.table = a.table,
                                  .adapters = a.adapters,
                                  .x = cuda_matrix(a.x),
                                  .y = cuda_matrix(a.y),
                                  .feed = cuda_matrix(a.feed),
                                  .squares = a.squares,
                                  .epsilon = a.epsilon,
                                  .scale = a.scale,
                                  .rows = static_cast<int>(a.y.rows),
                                  .k = static_cast<int>(a.x.cols),
                                  .cluster = cluster_,
                                  .half = static_cast<int>(a.feed.cols),
                                  .gate_group = a.gate_group,
                                  .splits = splits_of(gated ? a.feed.cols : a.y.cols, cluster_),
                                  .most_rank = static_cast<int>((rank + 15) / 16 * 16),
                                  .wide = is_aligned(a.y)};
    MR_ASSERT(!gated || (params.wide && is_aligned(a.feed) && a.gate_group % 8 == 0));
    check_launch(launch_lora_decode(params, a.format, cuda_launch(executor)), "starting lora");
  }

 private:
  std::string_view name_;
  int cluster_;
  const CudaLoraDecode* base_;
};

const CudaLoraDecode& decode() {
  static const CudaLoraDecode kernel("cuda_decode", 4, nullptr);
  return kernel;
}

}  // namespace

const Kernel<LoraOp>& cuda_lora_decode() { return decode(); }

const Kernel<LoraOp>& cuda_lora_decode_wide() {
  static const CudaLoraDecode kernel("cuda_decode-wide", 8, &decode());
  return kernel;
}

}  // namespace millrace
