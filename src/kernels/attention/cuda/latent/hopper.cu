// Latent attention with warpgroup products as a kernel of the dataflow.
#include "kernels/attention/cuda/latent/hopper.cuh"

#include <algorithm>
#include <cmath>

#include "hardware/cuda_device.h"
#include "hardware/per_device.h"
#include "kernels/attention/cuda/kernels.h"
#include "kernels/attention/cuda/latent/arguments.cuh"
#include "kernels/attention/cuda/occupancy.h"
#include "kernels/cuda/cost.h"

namespace millrace {
namespace {

using WideEntry = void (*)(LatentWideParams);
WideEntry wide_entry(DType kv) { return kv == DType::F16 ? latent_wide<__half> : latent_wide<__nv_bfloat16>; }

struct WideResident {
  int of_f16 = -1, of_bf16 = -1;
};
int resident(DType kv) {
  auto& known = per_cuda_device<WideResident>();
  int& blocks = kv == DType::F16 ? known.of_f16 : known.of_bf16;
  if (blocks < 0)
    blocks = resident_blocks(reinterpret_cast<const void*>(wide_entry(kv)), WideTile::kThreads, WideTile::kSharedBytes);
  return blocks;
}

// At most one block per multiprocessor has a part of a tile.
struct WideWorkspace {
  size_t summaries = kCudaAttentionCounters, partials, bytes;
  explicit WideWorkspace(int64_t blocks)
      : partials(summaries + static_cast<size_t>(blocks) * WideTile::kRows * sizeof(float2)),
        bytes(partials + static_cast<size_t>(blocks) * WideTile::kRows * WideTile::kLatent * sizeof(float)) {}
};

class LatentWideKernel final : public AttentionKernel {
 public:
  std::string_view name() const override { return "cuda_latent_wide"; }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || hardware.architecture != 90 || !p.latent || p.kv_heads != 1) return false;
    if (p.kv != DType::F16 && p.kv != DType::BF16) return false;
    if (p.key_dim != WideTile::kKey || p.value_dim != WideTile::kLatent || p.block_size % 16 != 0) return false;
    if (p.precision == Precision::Exact || p.window != 0 || p.bidirectional || p.invariant) return false;
    return tensor_map_encoder() != nullptr && resident(p.kv) > 0;
  }

  double estimate_us(const Problem& p, const Hardware& h) const override {
    const double each = double(p.rows) / double(p.sequences), tiles = std::ceil(each * p.heads / WideTile::kRows);
    const double seen = double(p.context) - (each - 1) / 2;
    const double bytes = double(p.sequences) * seen * double(row_bytes(p.kv, p.key_dim)) * (0.4 + 0.6 * tiles);
    const double flops = 2.0 * double(p.sequences) * tiles * WideTile::kRows * seen * (p.key_dim + p.value_dim);
    return 11 + std::max(bytes / (0.85 * h.ceilings.read_gbs), flops / (0.55 * h.ceilings.bf16_gflops)) * 1e-3;
  }

  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return WideWorkspace(resident(p.kv)).bytes;
  }

  void run(const Args& a, const Executor& executor) const override {
    if (latent_rows(a) == 0) return;
    const int blocks = resident(a.kv.dtype), block_size = a.kv.block_size;
    LatentWideParams params;
    params.decode = latent_params(a);
    params.tiles = static_cast<int>(latent_tiles(a, WideTile::kRows));
    params.box_rows = latent_box_rows(block_size);
    const int64_t most_parts = a.tables.page_stride * block_size / (2 * WideTile::kTokens);
    params.parts = static_cast<int>(std::clamp<int64_t>(blocks / params.tiles, 1, std::max<int64_t>(1, most_parts)));
    const WideWorkspace space(blocks);
    params.decode.summaries = reinterpret_cast<float2*>(executor.workspace + space.summaries);
    params.decode.partials = reinterpret_cast<float*>(executor.workspace + space.partials);
    check_launch(describe_latent_rows(a.kv, params.box_rows, params.rows) ? cudaSuccess : cudaErrorInvalidValue,
                 "describing latent rows");
    const CudaLaunch launch = cuda_launch(executor);
    const dim3 grid(static_cast<unsigned>(params.tiles), static_cast<unsigned>(params.parts));
    check_launch(
        launch_kernel(wide_entry(a.kv.dtype), grid, WideTile::kThreads, WideTile::kSharedBytes, launch, params),
        "starting latent attention");
    if (params.parts == 1) return;
    const dim3 rows(WideTile::kRows, static_cast<unsigned>(params.tiles));
    check_launch(launch_kernel(add_wide_parts, rows, WideTile::kLatent / 4, 0, launch, params),
                 "adding up latent attention");
  }
};

}  // namespace

const AttentionKernel* cuda_latent_wide_attention() {
  static const LatentWideKernel kernel;
  return &kernel;
}

}  // namespace millrace
