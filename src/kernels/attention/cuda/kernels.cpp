// The attention launches as kernels of the dataflow, one per kind and softmax variant.
#include "kernels/attention/cuda/kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hardware/cuda_device.h"
#include "hardware/per_device.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cuda/decode/even_cut.h"
#include "kernels/attention/cuda/launch.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"

namespace millrace {
namespace {

static_assert(sizeof(DeviceSlice) == sizeof(SliceTables::Slice));

struct Variant {
  std::string_view name;
  CudaAttentionKind kind;
  Softmax softmax;
};
constexpr Variant kVariants[] = {
    {"cuda_cluster_lazy", CudaAttentionKind::DecodeCluster, Softmax::Lazy},
    {"cuda_cluster_online", CudaAttentionKind::DecodeCluster, Softmax::Online},
    {"cuda_cluster_unified", CudaAttentionKind::DecodeCluster, Softmax::Unified},
    {"cuda_decode_lazy", CudaAttentionKind::Decode, Softmax::Lazy},
    {"cuda_decode_online", CudaAttentionKind::Decode, Softmax::Online},
    {"cuda_decode_unified", CudaAttentionKind::Decode, Softmax::Unified},
    {"cuda_prefill_hopper", CudaAttentionKind::PrefillHopper, Softmax::Online},
    {"cuda_prefill", CudaAttentionKind::Prefill, Softmax::Online},
    {"cuda_general", CudaAttentionKind::General, Softmax::Online},
};

class CudaAttention final : public AttentionKernel {
 public:
  explicit CudaAttention(const Variant& variant) : variant_(variant) {}
  std::string_view name() const override { return variant_.name; }
  bool is_for_prompts() const {
    return variant_.kind == CudaAttentionKind::PrefillHopper || variant_.kind == CudaAttentionKind::Prefill;
  }

  bool can_run(const Problem& p, const Hardware& hardware) const override {
    if (!is_gpu(hardware) || !p.one_head_size() || p.bidirectional) return false;
    if (p.invariant && !is_invariant(p)) return false;
    if (variant_.softmax == Softmax::Unified && !p.calibrated) return false;
    if (p.precision == Precision::Exact && variant_.kind != CudaAttentionKind::General) return false;
    const bool hopper =
        variant_.kind == CudaAttentionKind::PrefillHopper || variant_.kind == CudaAttentionKind::DecodeCluster;
    if (hopper && hardware.architecture != 90) return false;
    return plan(shape_of(p)).can_run();
  }

  double estimate_us(const Problem& p, const Hardware& h) const override {
    const double visible =
        double(p.window > 0 ? std::min<int64_t>(p.context, p.window + p.rows / p.sequences) : p.context);
    const double kv = 2.0 * double(p.sequences) * visible * p.kv_heads * double(row_bytes(p.kv, p.key_dim));
    const double products = 4.0 * double(p.rows) * visible * p.heads * p.key_dim;
    const double seen = visible - double(p.rows - p.sequences) / double(2 * p.sequences);  // mean of a prompt
    const double reading = kv / h.ceilings.read_gbs * 1e-3;
    switch (variant_.kind) {
      case CudaAttentionKind::DecodeCluster:
      case CudaAttentionKind::Decode: {
        // Each tile of 16 query rows that share a KV head reads the keys and values again.
        const double rows_each = double(p.rows) / double(p.sequences) * p.heads / p.kv_heads;
        const double softmax_us = variant_.softmax == Softmax::Lazy     ? 0
                                  : variant_.softmax == Softmax::Online ? 0.1
                                                                        : 0.2;
        const double start_us = variant_.kind == CudaAttentionKind::Decode ? 8 : 6;  // merging parts costs time
        const double expanding = is_quantized(p.kv) ? 0.75 : 1;
        const double share =
            expanding * (variant_.kind == CudaAttentionKind::DecodeCluster ? share_of_clusters(p, h) : 0.95);
        return start_us + softmax_us + reading * std::max(1.0, std::ceil(rows_each / 16)) / share;
      }
      // Prefill kernels are not built for streaming: 64 decodes of an MHA model took a third longer with one.
      case CudaAttentionKind::PrefillHopper:
        return 10 + std::max(reading / 0.7, products * seen / visible / (0.75 * h.ceilings.bf16_gflops) * 1e-3) +
               0.008 * visible;
      case CudaAttentionKind::Prefill:
        return 10 + std::max(reading / 0.7, products * seen / visible / (0.35 * h.ceilings.bf16_gflops) * 1e-3) +
               0.02 * visible;
      case CudaAttentionKind::General:
        break;
    }
    return 10 + products / (0.04 * h.ceilings.f32_gflops) * 1e-3 + visible * 0.04;
  }

  // Partial results are merged through memory at the end of the kernel. Back-to-back launches in a measurement hide
  // that, a step does not.
  double burden(const Problem&) const override { return variant_.kind == CudaAttentionKind::Decode ? 1.15 : 1; }
  bool takes_along(const Problem& p, const Hardware&) const override {
    return p.rows == p.sequences && takes_fresh_rows(shape_of(p));
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return plan(shape_of(p)).workspace_bytes; }

  void run(const Args& a, const Executor& executor) const override {
    int rows = 0;
    for (const auto& slice : a.sequences) rows += slice.rows;
    if (rows == 0) return;
    CudaAttentionArgs args;
    args.q = cuda_matrix(a.q);
    args.out = cuda_matrix(a.out);
    args.keys = a.kv.keys;
    args.values = a.kv.values;
    if (a.fresh.k.cols > 0) {
      args.fresh.keys = a.fresh.k.data;
      args.fresh.values = a.fresh.v.data;
      args.fresh.stride = a.fresh.k.stride;
      args.fresh.angles = a.fresh.angles.cols > 0 ? a.fresh.angles.row<float>(0) : nullptr;
      args.fresh.halves = a.fresh.style == RopeStyle::Halves;
      args.fresh.row_slots = a.tables.row_slots;
      args.fresh.q_norm = a.fresh.norms.q;
      args.fresh.k_norm = a.fresh.norms.k;
      args.fresh.epsilon = a.fresh.norms.epsilon;
    }
    args.slices = reinterpret_cast<const DeviceSlice*>(a.tables.slices);
    args.tables = a.tables.pages;
    args.table_pitch = a.tables.page_stride;
    args.scale = a.scale;
    args.softcap = a.softcap;
    args.window = a.window;
    args.phi = a.phi;
    args.sinks = a.sinks;
    args.workspace = executor.workspace;
    args.only_if = a.only_if;
    args.early = true;  // tables are complete before the step, and kv_write lets no kernel start before its writes
    const CudaAttentionShape shape{variant_.kind,
                                   variant_.softmax,
                                   a.kv.dtype,
                                   a.heads,
                                   a.kv.kv_heads,
                                   a.kv.key_dim,
                                   a.kv.block_size,
                                   static_cast<int>(a.sequences.size()),
                                   a.tables.longest_slice,
                                   rows,
                                   a.invariant,
                                   most_context(a.tables.page_stride * a.kv.block_size)};
    check_launch(launch_cuda_attention(plan(shape), args, cuda_launch(executor)), "starting attention");
  }

 private:
  CudaAttentionShape shape_of(const Problem& p) const {
    const auto longest = static_cast<int>(p.rows - p.sequences + 1);  // the other sequences have at least one row each
    return {variant_.kind, variant_.softmax,
            p.kv,          p.heads,
            p.kv_heads,    p.key_dim,
            p.block_size,  static_cast<int>(p.sequences),
            longest,       static_cast<int>(p.rows),
            p.invariant,   most_context(p.context)};
  }

  // The share of the bandwidth that clusters reach. They have a power of two of blocks, so some batches leave half of
  // the block slots empty, and long contexts stream slower. A few pairs leave multiprocessors idle.
  double share_of_clusters(const Problem& p, const Hardware& h) const {
    const CudaAttentionPlan& planned = plan(shape_of(p));
    const int places = h.cores * (planned.form == DecodeForm::WideCluster || p.key_dim > 128 ? 1 : 2);
    if (!planned.can_run() || 2 * planned.grid > places) return 0.95;
    return std::min(0.9, kFastestSm * planned.grid / h.cores);
  }

  // Only DecodeCluster plans depend on the context; the others share one plan for all contexts.
  int most_context(int64_t context) const {
    return variant_.kind == CudaAttentionKind::DecodeCluster ? static_cast<int>(context) : 0;
  }

  // The other kinds split work depending on the batch, or rescale a row when another row's maximum grows. A window
  // changes which units a warp takes when it moves to the next chunk.
  bool is_invariant(const Problem& p) const {
    if (variant_.kind == CudaAttentionKind::General) return true;
    return variant_.kind == CudaAttentionKind::DecodeCluster && variant_.softmax == Softmax::Online && p.window == 0;
  }

  // Plans query the driver for occupancy, so they are kept per shape. The first step of a shape is not recorded.
  const CudaAttentionPlan& plan(const CudaAttentionShape& shape) const {
    auto& plans = per_cuda_device<std::vector<CudaAttentionPlan>>();
    for (auto& known : plans) {
      if (known.shape == shape) return known;
    }
    if (plans.size() == kPlans) plans.erase(plans.begin());
    return plans.emplace_back(plan_cuda_attention(shape));
  }
  static constexpr size_t kPlans = 256;

  Variant variant_;
};

}  // namespace

KernelList<AttentionOp> AttentionOp::cuda() {
  static const std::vector<CudaAttention> kernels(std::begin(kVariants), std::end(kVariants));
  KernelList<AttentionOp> all, prompts;
  for (const auto& kernel : kernels) {
    all.push_back(&kernel);
    if (kernel.is_for_prompts()) prompts.push_back(&kernel);
  }
  all.push_back(cuda_widened_attention(prompts));
  for (const auto* kernel : cuda_latent_few_attention()) all.push_back(kernel);
  for (const auto* kernel : cuda_latent_attention()) all.push_back(kernel);
  all.push_back(cuda_latent_wide_attention());
  all.push_back(cuda_simple_attention());
#ifdef MILLRACE_CUDNN
  all.push_back(cuda_cudnn_attention(prompts));
#endif
  return all;
}

}  // namespace millrace
