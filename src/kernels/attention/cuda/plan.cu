#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/attention/cuda/decode/entry.h"
#include "kernels/attention/cuda/decode/params.cuh"
#include "kernels/attention/cuda/general_entry.h"
#include "kernels/attention/cuda/occupancy.h"
#include "kernels/attention/cuda/prefill/entry.h"
#include "tensor/kv_dtype.h"

namespace millrace {
namespace {

// Cost for a block of an even split to change to another pair, measured (docs/lab/h200-attention.md).
constexpr int kChangeUnits = 12;

constexpr size_t kAlign = 256;
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

DecodeEntry decode_entry(const CudaAttentionShape& shape, DecodeForm form) {
  if (shape.kv == DType::Q8_0) return decode_entry_q8(shape.head_dim, shape.softmax, form);
  if (shape.kv == kFp8) return decode_entry_fp8(shape.head_dim, shape.softmax, form);
  if (!is_half(shape.kv)) return {};
  switch (shape.head_dim) {
    case 64:
      return decode_entry_64(shape.kv, shape.softmax, form);
    case 80:
      return decode_entry_80(shape.kv, shape.softmax, form);
    case 96:
      return decode_entry_96(shape.kv, shape.softmax, form);
    case 128:
      return decode_entry_128(shape.kv, shape.softmax, form);
    case 256:
      return decode_entry_256(shape.kv, shape.softmax, form);
    default:
      return {};
  }
}

bool sensible(const CudaAttentionShape& s) {
  return s.sequences > 0 && s.max_rows > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.heads > 0 &&
         s.block_size > 0 && s.head_dim > 0 && s.head_dim % 8 == 0;
}

// Workspace of a decode: counters of pairs and of groups of parts, summaries of parts and groups, partial results.
struct DecodeWorkspace {
  size_t group_counters, counters_end, summaries, group_summaries, partials, end;
};
int pairs_per_sequence(const CudaAttentionShape& s) {
  return s.kv_heads * ((s.max_rows * (s.heads / s.kv_heads) + kTileRows - 1) / kTileRows);
}
int all_pairs(const CudaAttentionShape& s) { return s.sequences * pairs_per_sequence(s); }
DecodeWorkspace decode_workspace(const CudaAttentionShape& s, int grid) {
  DecodeWorkspace space;
  const size_t parts = static_cast<size_t>(grid) * 2, rows = parts * kTileRows;
  space.group_counters = static_cast<size_t>(all_pairs(s)) * sizeof(unsigned);
  space.counters_end = space.group_counters + parts * sizeof(unsigned);
  space.summaries = kCudaAttentionCounters;
  space.group_summaries = space.summaries + aligned(rows * sizeof(float2));
  space.partials = space.group_summaries + aligned(rows * sizeof(float2));
  space.end = space.partials + rows * static_cast<size_t>(s.head_dim) * 4;
  return space;
}

// Maximum number of units per warp if `ranks` blocks share a pair.
int units_of_warp(const CudaAttentionShape& s, int warps, int ranks) {
  const int together = kUnit * warps * ranks;
  return (s.max_context + together - 1) / together;
}

// As many stages as a warp has units: the remaining shared memory lets blocks of the next kernel start and prefetch
// their weights. If a multiprocessor has only one block and contexts are long, the block uses twice the stages.
void choose_stages(CudaAttentionPlan& plan, const DecodeEntry& entry, int pairs) {
  constexpr int kDeepFrom = 8;  // contexts this many times longer than the stages
  const auto* kernel = reinterpret_cast<const void*>(entry.kernel);
  const int units = units_of_warp(plan.shape, entry.warps, plan.cluster);
  // Always queried, and last: the kernel may use the largest amount of shared memory ever queried.
  const bool fits =
      entry.deep_bytes > 0 && resident_blocks(kernel, plan.threads, entry.deep_bytes) >= plan.grid &&
      (plan.cluster == 1 || resident_clusters(kernel, plan.threads, entry.deep_bytes, plan.cluster) >= pairs);
  if (fits && (units == 0 || units > kDeepFrom * entry.stages)) {
    plan.shared_bytes = entry.deep_bytes;
    plan.stages = 2 * entry.stages;
  } else if (units > 0 && units < entry.stages) {
    plan.stages = units < entry.least_stages ? entry.least_stages : units;
    plan.shared_bytes -= (entry.stages - plan.stages) * entry.stage_bytes;
  }
}

// Maximum blocks per cluster such that all warps have units. Clusters of sixteen take over a microsecond longer than
// clusters of eight to start and to add up, so the warps must have enough work.
int most_ranks(const CudaAttentionShape& s, int warps) {
  constexpr unsigned kMost = 16, kWorthMost = 4;  // units per warp
  if (s.invariant) return 1;                      // one block per pair adds up in the order of the positions
  if (s.max_context == 0) return kMost;
  const auto blocks = static_cast<unsigned>(units_of_warp(s, warps, 1));  // such that each warp has one unit
  return static_cast<int>(blocks > kWorthMost * kMost ? kMost : std::min(kMost / 2, std::bit_ceil(blocks)));
}

// The largest clusters such that all pairs still run at once; single blocks if there are more pairs than that.
CudaAttentionPlan plan_clusters(CudaAttentionPlan plan, const DecodeEntry& entry) {
  const auto* kernel = reinterpret_cast<const void*>(entry.kernel);
  const int pairs = all_pairs(plan.shape), resident = plan.grid;
  plan.grid = 0;
  if (resident == 0 || device_capability() < 90) return plan;
  plan.cluster = 1;
  for (int ranks = most_ranks(plan.shape, entry.warps); ranks > 1; ranks /= 2) {
    if (pairs * ranks > resident || resident_clusters(kernel, plan.threads, plan.shared_bytes, ranks) < pairs) continue;
    plan.cluster = ranks;
    break;
  }
  plan.grid = pairs * plan.cluster;
  choose_stages(plan, entry, pairs);
  return plan;
}

int blocks_at_once(const DecodeEntry& entry) {
  return resident_blocks(reinterpret_cast<const void*>(entry.kernel), entry.threads, entry.shared_bytes);
}

CudaAttentionPlan plan_form(CudaAttentionPlan plan, DecodeForm form) {
  const DecodeEntry entry = decode_entry(plan.shape, form);
  if (entry.kernel == nullptr) return plan;
  plan.form = form;
  plan.grid = blocks_at_once(entry);
  plan.threads = entry.threads;
  plan.shared_bytes = entry.shared_bytes;
  plan.stages = entry.stages;
  if (form == DecodeForm::Cluster || form == DecodeForm::WideCluster) return plan_clusters(plan, entry);
  plan.workspace_bytes = decode_workspace(plan.shape, plan.grid).end;
  return plan;
}

// If there are fewer clusters than slots, two blocks may share a multiprocessor while others are idle. Wide blocks
// never share one; with enough work per warp they are faster even if their clusters are half as large.
bool wants_wide(const CudaAttentionPlan& usual) {
  constexpr int kWorthWide = 4;  // units per warp
  const CudaAttentionShape& s = usual.shape;
  const DecodeEntry entry = decode_entry(s, DecodeForm::WideCluster);
  return entry.kernel != nullptr && !s.invariant && s.max_context > kWorthWide * kUnit * kUsualWarps * usual.cluster &&
         usual.grid <= blocks_at_once(entry);
}

// If blocks have more than one pair, uses a power of two of blocks: more pairs then end where a block ends.
CudaAttentionPlan plan_even(CudaAttentionPlan plan) {
  plan = plan_form(plan, DecodeForm::Even);
  if (!plan.can_run()) return plan;
  const int pairs = all_pairs(plan.shape);
  if (!EvenCut::can_count(plan.grid, pairs, plan.shape.max_context / kUnit + 1 + kChangeUnits)) plan.grid = 0;
  if (pairs > plan.grid) plan.grid = static_cast<int>(std::bit_floor(static_cast<unsigned>(plan.grid)));
  return plan;
}

CudaAttentionPlan best_clusters(const CudaAttentionPlan& plan) {
  const CudaAttentionPlan usual = plan_form(plan, DecodeForm::Cluster);
  if (!usual.can_run() || !wants_wide(usual)) return usual;
  const CudaAttentionPlan wide = plan_form(plan, DecodeForm::WideCluster);
  // Wide blocks have no merge buffer: they can only merge within a cluster.
  return wide.cluster > 1 && 2 * wide.grid >= usual.grid ? wide : usual;
}

CudaAttentionPlan plan_decode(CudaAttentionPlan plan) {
  const CudaAttentionShape& s = plan.shape;
  if (s.block_size % kUnit != 0) return plan;
  if (s.kind == CudaAttentionKind::Decode) {
    const CudaAttentionPlan line = plan_form(plan, DecodeForm::Line);
    return decode_workspace(s, line.grid).counters_end > kCudaAttentionCounters ? plan : line;
  }
  CudaAttentionPlan clusters = best_clusters(plan);
  if (!clusters.can_run() || s.invariant) return clusters;
  const CudaAttentionPlan even = plan_even(plan);
  // The planner may know less about contexts than the launch: reserve the same workspace for either split.
  clusters.workspace_bytes = even.workspace_bytes;
  if (!even.can_run()) return clusters;
  const CutLosses losses{all_pairs(s), multiprocessor_count(), blocks_at_once(decode_entry(s, DecodeForm::Even)),
                         2.0 * s.max_context * static_cast<double>(row_bytes(s.kv, s.head_dim))};
  return losses.by_sharing(even.grid) < losses.by_clusters(clusters.cluster) ? even : clusters;
}

CudaError launch_decode(const CudaAttentionPlan& plan, const CudaAttentionArgs& args, const CudaLaunch& launch) {
  const CudaAttentionShape& s = plan.shape;
  const DecodeWorkspace space = decode_workspace(s, plan.grid);
  std::byte* base = static_cast<std::byte*>(args.workspace);
  DecodeParams p;
  p.args = args;
  p.sequences = s.sequences;
  p.kv_heads = s.kv_heads;
  p.group = s.heads / s.kv_heads;
  p.block_size = s.block_size;
  if (std::has_single_bit(static_cast<unsigned>(s.block_size))) {
    p.block_shift = std::countr_zero(static_cast<unsigned>(s.block_size));
  }
  p.pairs_per_sequence = pairs_per_sequence(s);
  p.most_tiles = p.pairs_per_sequence / s.kv_heads;
  p.ranks = plan.cluster;
  p.counters = reinterpret_cast<unsigned*>(base);
  p.group_counters = reinterpret_cast<unsigned*>(base + space.group_counters);
  p.summaries = reinterpret_cast<float2*>(base + space.summaries);
  p.group_summaries = reinterpret_cast<float2*>(base + space.group_summaries);
  p.partials = reinterpret_cast<float*>(base + space.partials);
  const DecodeEntry entry = decode_entry(s, plan.form);
  p.deep = plan.stages > entry.stages;
  p.held_stages = plan.stages;
  p.cut = EvenCut(plan.grid, all_pairs(s), kChangeUnits);
  p.by_pairs_per_sequence = Divisor(static_cast<unsigned>(p.pairs_per_sequence));
  p.stamps = stamps_of_launch(static_cast<unsigned>(plan.grid));
  // One grid row per sequence of clusters, so that no block has to divide to find its sequence.
  const bool clusters = plan.form == DecodeForm::Cluster || plan.form == DecodeForm::WideCluster;
  const int rows = clusters ? s.sequences : 1;
  const dim3 grid(static_cast<unsigned>(plan.grid / rows), static_cast<unsigned>(rows));
  return launch_kernel(entry.kernel, grid, plan.threads, static_cast<size_t>(plan.shared_bytes), launch, p,
                       plan.cluster);
}

PrefillEntry prefill_entry(const CudaAttentionShape& shape) {
  return shape.head_dim >= 128 ? prefill_entry_large(shape.kv, shape.head_dim)
                               : prefill_entry_small(shape.kv, shape.head_dim);
}

CudaAttentionPlan plan_prefill(CudaAttentionPlan plan) {
  const CudaAttentionShape& s = plan.shape;
  if (!is_half(s.kv)) return plan;
  const PrefillEntry entry = prefill_entry(s);
  if (entry.kernel == nullptr) return plan;
  if (resident_blocks(reinterpret_cast<const void*>(entry.kernel), entry.threads, entry.shared_bytes) == 0) return plan;
  plan.grid = prefill_tiles(s, entry.tile_rows) * s.heads;
  plan.threads = entry.threads;
  plan.shared_bytes = entry.shared_bytes;
  return plan;
}

CudaError launch_prefill(const CudaAttentionPlan& plan, const CudaAttentionArgs& args, const CudaLaunch& launch) {
  const CudaAttentionShape& s = plan.shape;
  const PrefillParams params{args, s.sequences, s.heads, s.kv_heads, s.block_size, plan.grid / s.heads};
  return launch_kernel(prefill_entry(s).kernel, dim3(static_cast<unsigned>(plan.grid)), plan.threads,
                       static_cast<size_t>(plan.shared_bytes), launch, params);
}

CudaAttentionPlan plan_general(CudaAttentionPlan plan) {
  const CudaAttentionShape& s = plan.shape;
  if (s.head_dim > kGeneralMaxDim || (s.kv == DType::Q8_0 && s.head_dim % 32 != 0)) return plan;
  if (!is_half(s.kv) && s.kv != DType::F32 && s.kv != DType::Q8_0 && s.kv != kFp8) return plan;
  plan.grid = (s.total_rows > 0 ? s.total_rows : s.sequences * s.max_rows) * s.heads;
  plan.threads = kGeneralThreads;
  plan.shared_bytes = general_shared_bytes(s.head_dim);
  return plan;
}

}  // namespace

int prefill_tiles(const CudaAttentionShape& shape, int tile_rows) {
  const int each = shape.sequences * ((shape.max_rows + tile_rows - 1) / tile_rows);
  const int all = shape.total_rows / tile_rows + shape.sequences;
  return shape.total_rows > 0 && all < each ? all : each;
}

CudaAttentionPlan plan_even_attention(const CudaAttentionShape& shape) {
  CudaAttentionPlan plan;
  plan.shape = shape;
  return sensible(shape) && shape.block_size % kUnit == 0 ? plan_even(plan) : plan;
}

bool takes_fresh_rows(const CudaAttentionShape& s) {
  const bool decodes = s.kind == CudaAttentionKind::Decode || s.kind == CudaAttentionKind::DecodeCluster;
  return decodes && s.max_rows == 1 && s.heads / s.kv_heads <= kTileRows && s.head_dim <= kMostFreshDim;
}

CudaAttentionPlan plan_cuda_attention(const CudaAttentionShape& shape) {
  CudaAttentionPlan plan;
  plan.shape = shape;
  if (!sensible(shape)) return plan;
  switch (shape.kind) {
    case CudaAttentionKind::Decode:
    case CudaAttentionKind::DecodeCluster:
      return plan_decode(plan);
    case CudaAttentionKind::Prefill:
      return plan_prefill(plan);
    case CudaAttentionKind::PrefillHopper:
      return plan_prefill_hopper(plan);
    case CudaAttentionKind::General:
      return plan_general(plan);
  }
  return plan;
}

CudaError launch_cuda_attention(const CudaAttentionPlan& plan, const CudaAttentionArgs& args,
                                const CudaLaunch& launch) {
  switch (plan.shape.kind) {
    case CudaAttentionKind::Decode:
    case CudaAttentionKind::DecodeCluster:
      return launch_decode(plan, args, launch);
    case CudaAttentionKind::Prefill:
      return launch_prefill(plan, args, launch);
    case CudaAttentionKind::PrefillHopper:
      return launch_prefill_hopper(plan, args, launch);
    case CudaAttentionKind::General:
      return launch_general_attention(plan.shape, plan.grid, args, launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace millrace
