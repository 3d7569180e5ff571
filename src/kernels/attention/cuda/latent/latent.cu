// Latent attention as kernels of the dataflow, one per softmax variant: decodes and prompts over 16-bit latent rows.
#include <algorithm>
#include <cmath>
#include <map>

#include "hardware/cuda_device.h"
#include "hardware/per_device.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cuda/kernels.h"
#include "kernels/attention/cuda/latent/arguments.cuh"
#include "kernels/attention/cuda/latent/kernel.cuh"
#include "kernels/attention/cuda/occupancy.h"
#include "kernels/cuda/cost.h"

namespace millrace {
namespace {

using Entry = void (*)(LatentParams);

struct LatentEntry {
  Entry attend = nullptr, add_parts = nullptr, cluster = nullptr;
  int threads = 0, shared_bytes = 0, latent = 0;
};

template <class T, class Config>
LatentEntry entry_of(Softmax softmax) {
  const Entry attend = softmax == Softmax::Lazy     ? latent_attention<T, Config, Softmax::Lazy>
                       : softmax == Softmax::Online ? latent_attention<T, Config, Softmax::Online>
                                                    : latent_attention<T, Config, Softmax::Unified>;
  const Entry cluster = softmax == Softmax::Lazy     ? latent_cluster<T, Config, Softmax::Lazy>
                        : softmax == Softmax::Online ? latent_cluster<T, Config, Softmax::Online>
                                                     : latent_cluster<T, Config, Softmax::Unified>;
  return {attend, add_latent_parts<Config>, cluster, Config::kThreads, Config::kSharedBytes, Config::kLatent};
}
template <class Config>
LatentEntry entry_of(DType kv, Softmax softmax) {
  return kv == DType::F16 ? entry_of<__half, Config>(softmax) : entry_of<__nv_bfloat16, Config>(softmax);
}
bool has_sizes(int key_dim, int value_dim, int latent) { return value_dim == latent && key_dim == latent + latent / 8; }
LatentEntry find_entry(DType kv, int key_dim, int value_dim, Softmax softmax) {
  if (kv != DType::F16 && kv != DType::BF16) return {};
  if (has_sizes(key_dim, value_dim, 512)) return entry_of<LatentConfig<512>>(kv, softmax);  // DeepSeek, GLM
  if (has_sizes(key_dim, value_dim, 256)) return entry_of<LatentConfig<256>>(kv, softmax);  // MiniCPM3
  return {};
}

// Blocks that run at once. The driver is asked once per kernel: the first step of a shape is not recorded.
int resident(const LatentEntry& entry, Entry kernel) {
  auto& known = per_cuda_device<std::map<Entry, int>>();
  const auto found = known.find(kernel);
  if (found != known.end()) return found->second;
  return known[kernel] = resident_blocks(reinterpret_cast<const void*>(kernel), entry.threads, entry.shared_bytes);
}
int resident(const LatentEntry& entry) { return resident(entry, entry.attend); }

// Whether clusters suit the batch better than the line of work: all of them run at once, and eight blocks are enough
// for the longest sequence.
bool suits_clusters(const LatentEntry& entry, int64_t tiles, int64_t context) {
  constexpr int64_t kShort = 2048;
  if (context > kShort || device_capability() != 90) return false;
  struct Clusters {
    std::map<Entry, int> at_once;
  };
  auto& known = per_cuda_device<Clusters>().at_once;
  if (!known.contains(entry.cluster)) {
    const bool fits = resident(entry, entry.cluster) > 0;  // raises the limit of shared memory, too
    const auto* kernel = reinterpret_cast<const void*>(entry.cluster);
    known[entry.cluster] = fits ? resident_clusters(kernel, entry.threads, entry.shared_bytes, kLatentRanks) : 0;
  }
  return tiles <= known[entry.cluster];
}

// Shapes share a workspace, whose counters lie in front.
struct Workspace {
  size_t summaries = kCudaAttentionCounters, partials, bytes;
  Workspace(int64_t blocks, int latent)
      : partials(summaries + static_cast<size_t>(blocks) * 2 * kTileRows * sizeof(float2)),
        bytes(partials + static_cast<size_t>(blocks) * 2 * kTileRows * static_cast<size_t>(latent) * sizeof(float)) {}
};

class LatentKernel final : public AttentionKernel {
 public:
  LatentKernel(std::string_view name, Softmax softmax) : name_(name), softmax_(softmax) {}
  std::string_view name() const override { return name_; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || !p.latent || p.kv_heads != 1 || p.block_size % kUnit != 0) return false;
    if (p.precision == Precision::Exact || p.window != 0 || p.bidirectional) return false;
    if (softmax_ == Softmax::Unified && !p.calibrated) return false;
    if (p.invariant && softmax_ != Softmax::Online) return false;
    const LatentEntry entry = find_entry(p.kv, p.key_dim, p.value_dim, softmax_);
    return entry.attend != nullptr && resident(entry) > 0;
  }

  // Every tile of 16 query rows reads the latent rows again, the later ones from the cache.
  double estimate_us(const Problem& p, const Hardware& h) const override {
    const double each = double(p.rows) / double(p.sequences), tiles = std::ceil(each * p.heads / kTileRows);
    const double seen = double(p.context) - (each - 1) / 2;
    const double bytes = double(p.sequences) * seen * double(row_bytes(p.kv, p.key_dim)) * (0.4 + 0.6 * tiles);
    const double flops = 2.0 * double(p.sequences) * tiles * kTileRows * seen * (p.key_dim + p.value_dim);
    const double us = std::max(bytes / (0.85 * h.ceilings.read_gbs), flops / (0.3 * h.ceilings.bf16_gflops)) * 1e-3;
    const double softmax_us = softmax_ == Softmax::Lazy ? 0 : softmax_ == Softmax::Online ? 0.1 : 0.2;
    return 9 + softmax_us + us + (p.invariant ? 0.03 * seen : 0);
  }

  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    const LatentEntry entry = find_entry(p.kv, p.key_dim, p.value_dim, softmax_);
    return Workspace(resident(entry), entry.latent).bytes;
  }

  void run(const Args& a, const Executor& executor) const override {
    if (latent_rows(a) == 0) return;
    const LatentEntry entry = find_entry(a.kv.dtype, a.kv.key_dim, a.kv.value_dim, softmax_);
    const auto sequences = std::ssize(a.sequences);
    const int64_t most_tiles = (int64_t{a.tables.longest_slice} * a.heads + kTileRows - 1) / kTileRows;
    const int64_t tiles = latent_tiles(a, kTileRows);
    const int blocks = resident(entry);
    LatentParams params;
    // A block for each tile fills the device only with many tiles, but its sums do not depend on the batch.
    params.whole = a.invariant || tiles >= 2 * blocks;
    params.blocks = params.whole ? static_cast<int>(tiles) : blocks;
    params.least_units = kLeastUnits;
    params.decode = latent_params(a);
    const Workspace space(blocks, entry.latent);
    params.decode.summaries = reinterpret_cast<float2*>(executor.workspace + space.summaries);
    params.decode.partials = reinterpret_cast<float*>(executor.workspace + space.partials);
    const CudaLaunch launch = cuda_launch(executor);
    const auto shared = static_cast<size_t>(entry.shared_bytes);
    if (!params.whole && suits_clusters(entry, tiles, a.tables.page_stride * a.kv.block_size)) {
      const dim3 grid(kLatentRanks, static_cast<unsigned>(most_tiles), static_cast<unsigned>(sequences));
      return check_launch(launch_kernel(entry.cluster, grid, entry.threads, shared, launch, params, kLatentRanks),
                          "starting latent attention");
    }
    check_launch(
        launch_kernel(entry.attend, dim3(static_cast<unsigned>(params.blocks)), entry.threads, shared, launch, params),
        "starting latent attention");
    if (params.whole) return;
    const dim3 grid(kTileRows, static_cast<unsigned>(most_tiles), static_cast<unsigned>(sequences));
    const int groups = tiles <= blocks / 16 ? kMostGroups : 1;  // a tile has about blocks / tiles parts
    check_launch(launch_kernel(entry.add_parts, grid, groups * entry.latent / 4, 0, launch, params),
                 "adding up latent attention");
  }

 private:
  static constexpr int kLeastUnits = 2;

  std::string_view name_;
  Softmax softmax_;
};

}  // namespace

KernelList<AttentionOp> cuda_latent_attention() {
  static const LatentKernel lazy("cuda_latent_lazy", Softmax::Lazy);
  static const LatentKernel online("cuda_latent_online", Softmax::Online);
  static const LatentKernel unified("cuda_latent_unified", Softmax::Unified);
  return {&lazy, &online, &unified};
}

}  // namespace millrace
