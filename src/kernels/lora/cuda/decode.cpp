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

// Bytes of the next layer's A to fetch ahead: a part of the L2 cache that leaves room for what streams through it.
constexpr int64_t kMostAhead = int64_t{16} << 20;

// As many clusters, up to one for each row of a group, as give each warp one tile of columns.
int log_splits_of(int64_t columns) {
  constexpr int64_t kOfCluster = int64_t{kTileColumns} * kDecodeWarps * kLoraCluster;
  int log = 0;
  while ((2 << log) <= kLoraGroup && kOfCluster << log < columns) ++log;
  return log;
}

class CudaLoraDecode final : public Kernel<LoraOp> {
 public:
  std::string_view name() const override { return "cuda_decode"; }
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
    const bool ahead = a.next_k % 8 == 0;  // rows are multiples of 16 bytes
    const LoraDecodeParams params{.table = a.table,
                                  .adapters = a.adapters,
                                  .x = cuda_matrix(a.x),
                                  .y = cuda_matrix(a.y),
                                  .feed = cuda_matrix(a.feed),
                                  .squares = a.squares,
                                  .epsilon = a.epsilon,
                                  .scale = a.scale,
                                  .inverse_k = 1 / static_cast<float>(a.x.cols),
                                  .rows = static_cast<int>(a.y.rows),
                                  .k = static_cast<int>(a.x.cols),
                                  .half = static_cast<int>(a.feed.cols),
                                  .gate_group = a.gate_group,
                                  .log_splits = log_splits_of(gated ? a.feed.cols : a.y.cols),
                                  .most_rank = static_cast<int>((rank + 15) / 16 * 16),
                                  .wide = is_aligned(a.y),
                                  .next = ahead ? a.next : nullptr,
                                  .next_row_bytes = static_cast<int>(a.next_k * 2),
                                  .most_next_bytes = static_cast<int>(kMostAhead / a.y.rows / 16 * 16)};
    MR_ASSERT(!gated || (params.wide && is_aligned(a.feed) && a.gate_group % 8 == 0));
    check_launch(launch_lora_decode(params, a.format, cuda_launch(executor)), "starting lora");
  }
};

}  // namespace

const Kernel<LoraOp>& cuda_lora_decode() {
  static const CudaLoraDecode kernel;
  return kernel;
}

}  // namespace millrace
