// Latent attention for few query rows as kernels of the dataflow, one per softmax variant: decodes on Hopper whose
// sequences are about equally long.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/rounding.h"
#include "hardware/cuda_device.h"
#include "hardware/per_device.h"
#include "kernels/attention/cuda/decode/weigh.cuh"
#include "kernels/attention/cuda/kernels.h"
#include "kernels/attention/cuda/latent/arguments.cuh"
#include "kernels/attention/cuda/latent/few_rows.cuh"
#include "kernels/attention/cuda/latent/few_sums.cuh"
#include "kernels/attention/cuda/occupancy.h"
#include "kernels/cuda/cost.h"

namespace millrace {
namespace {

// Grid: (rank, tile, sequence). Registers and shared memory leave room for a block of the products by head before and
// behind (grouped_linear/cuda/plain_heads.cu), so that both kernels request their data while the other one runs.
template <class T, Softmax kSoftmax>
__global__ void __maxnreg__(136) latent_few(const __grid_constant__ LatentFewParams w) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) unsigned char shared[];
  const DecodeParams& p = w.decode;
  const FewSpace space(shared);
  allow_dependents();
  if (!p.args.early) wait_for_predecessors();
  const int rank = static_cast<int>(blockIdx.x);
  const DeviceSlice slice = p.args.slices[blockIdx.z];
  FewFeed feed(w, space);
  if (threadIdx.x == 0) {
    prefetch_map(&w.rows);
    prefetch_map(&w.tail);
    for (int i = 0; i < FewTile::kStages; ++i) {
      space.full(i).init(1);
      space.empty(i).init(FewTile::kWarps);
    }
    publish_to_tensor_cores();
    if (p.ranks > 1) expect_few_sums(space, p.ranks);
  }
  __syncthreads();
  const Segment s = few_segment(p, slice, rank);
  if (s.rows <= 0) return wait_for_predecessors();  // the whole cluster
  if (p.ranks > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  const int chunks = s.end - s.begin;
  if (threadIdx.x >= FewTile::kMultiplying) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");  // for the other warps; three of these four do nothing
    const bool feeds = threadIdx.x < FewTile::kMultiplying + 32;
    if (feeds) feed.run(s, 0);
    if (kSoftmax == Softmax::Unified && !__syncthreads_and(1) && feeds) feed.run(s, chunks);
    feed.wait();
    __syncwarp();
    if (p.ranks > 1) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
  FewRows<T> rows(p, space, s);
  wait_for_predecessors();
  rows.bring_queries();
  if (!rows.template run<kSoftmax>(0)) rows.template run<Softmax::Online>(chunks);
  finish_few(p, s, space, rows.finished_sums(), rank);
#endif
}

using Entry = void (*)(LatentFewParams);
template <class T>
Entry entry_of(Softmax softmax) {
  return softmax == Softmax::Lazy     ? latent_few<T, Softmax::Lazy>
         : softmax == Softmax::Online ? latent_few<T, Softmax::Online>
                                      : latent_few<T, Softmax::Unified>;
}
Entry entry_of(DType kv, Softmax softmax) {
  return kv == DType::F16 ? entry_of<__half>(softmax) : entry_of<__nv_bfloat16>(softmax);
}

// Clusters of 1, 2, 4, 8 and 16 blocks that run at once. The driver is asked once per kernel: the first step of a shape
// is not recorded.
using Places = std::array<int, 5>;
static_assert(FewTile::kMostRanks == 1 << (std::tuple_size_v<Places> - 1));
const Places& places(Entry entry) {
  auto& known = per_cuda_device<std::map<Entry, Places>>();
  const auto found = known.find(entry);
  if (found != known.end()) return found->second;
  const auto* kernel = reinterpret_cast<const void*>(entry);
  Places at_once{resident_blocks(kernel, FewTile::kThreads, FewTile::kSharedBytes)};
  for (size_t i = 1; i < at_once.size() && at_once[0] > 0; ++i)
    at_once[i] = resident_clusters(kernel, FewTile::kThreads, FewTile::kSharedBytes, 1 << i);
  return known[entry] = at_once;
}

// As many blocks for each tile as run at once, but not more than a sequence has chunks.
struct Clusters {
  int shift = 0;
  int64_t waves = 1;

  Clusters(const Places& at_once, int64_t tiles, int64_t context) {
    for (int i = 1; i < static_cast<int>(at_once.size()); ++i) {
      if (tiles <= at_once[i] && context > FewTile::kTokens * (int64_t{1} << (i - 1))) shift = i;
    }
    waves = ceil_div(tiles, int64_t{std::max(1, at_once[shift])});
  }
  int ranks() const { return 1 << shift; }
};

constexpr int64_t kMostRows = 16384;  // query rows of a sequence: tokens times heads; the grid would take more

class LatentFewKernel final : public AttentionKernel {
 public:
  LatentFewKernel(std::string_view name, Softmax softmax) : name_(name), softmax_(softmax) {}
  std::string_view name() const override { return name_; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || hardware.architecture != 90 || !p.latent || p.kv_heads != 1) return false;
    if (p.kv != DType::F16 && p.kv != DType::BF16) return false;
    if (p.key_dim != FewTile::kKey || p.value_dim != FewTile::kLatent || p.block_size % kUnit != 0) return false;
    if (p.precision == Precision::Exact || p.window != 0 || p.bidirectional || p.invariant) return false;
    if (softmax_ == Softmax::Unified && !p.calibrated) return false;
    if ((p.rows - p.sequences + 1) * p.heads > kMostRows) return false;
    return tensor_map_encoder() != nullptr && places(entry_of(p.kv, softmax_))[0] > 0;
  }

  // A chunk takes a block a microsecond, or as long as its share of the memory's bandwidth. Later tiles of a sequence
  // read the latent rows from the cache.
  double estimate_us(const Problem& p, const Hardware& h) const override {
    const double each = double(p.rows) / double(p.sequences), tiles = std::ceil(each * p.heads / kTileRows);
    const auto all = static_cast<int64_t>(double(p.sequences) * tiles);
    const Places& at_once = places(entry_of(p.kv, softmax_));
    const Clusters clusters(at_once, all, p.context);
    const double chunks = std::ceil(double(p.context) / FewTile::kTokens / clusters.ranks());
    const double blocks =
        double(std::min<int64_t>(all, at_once[static_cast<size_t>(clusters.shift)]) * clusters.ranks());
    const double bytes = FewTile::kChunkBytes * blocks * (0.4 + 0.6 / tiles);
    const double softmax_us = softmax_ == Softmax::Lazy ? 0 : softmax_ == Softmax::Online ? 0.1 : 0.2;
    const double chunk_us = std::max(1.0, bytes / (0.9 * h.ceilings.read_gbs) * 1e-3);
    return 4.5 + softmax_us + double(clusters.waves) * chunks * chunk_us * burden(p);
  }

  // A cluster has one sequence, however long the others are.
  double burden(const Problem& p) const override { return p.sequences > 1 && p.context > 2048 ? 1.2 : 1; }

  size_t workspace_bytes(const Problem&, const Hardware&) const override { return 0; }

  void run(const Args& a, const Executor& executor) const override {
    if (latent_rows(a) == 0) return;
    const Entry entry = entry_of(a.kv.dtype, softmax_);
    const int64_t context = a.tables.page_stride * a.kv.block_size;
    const int ranks = Clusters(places(entry), latent_tiles(a, kTileRows), context).ranks();
    LatentFewParams params;
    params.decode = latent_params(a);
    params.decode.ranks = ranks;
    params.box_rows = latent_box_rows(a.kv.block_size);
    const bool described =
        describe_latent_rows(a.kv, params.box_rows, params.rows) && describe_latent_rows(a.kv, kUnit, params.tail);
    check_launch(described ? cudaSuccess : cudaErrorInvalidValue, "describing latent rows");
    const int64_t most_tiles = (int64_t{a.tables.longest_slice} * a.heads + kTileRows - 1) / kTileRows;
    const dim3 grid(static_cast<unsigned>(ranks), static_cast<unsigned>(most_tiles),
                    static_cast<unsigned>(a.sequences.size()));
    check_launch(
        launch_kernel(entry, grid, FewTile::kThreads, FewTile::kSharedBytes, cuda_launch(executor), params, ranks),
        "starting latent attention");
  }

 private:
  std::string_view name_;
  Softmax softmax_;
};

}  // namespace

KernelList<AttentionOp> cuda_latent_few_attention() {
  static const LatentFewKernel lazy("cuda_latent_few_lazy", Softmax::Lazy);
  static const LatentFewKernel online("cuda_latent_few_online", Softmax::Online);
  static const LatentFewKernel unified("cuda_latent_few_unified", Softmax::Unified);
  return {&lazy, &online, &unified};
}

}  // namespace millrace
