#include <algorithm>

#include "kernels/grouped_lora/grouped_lora.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/grouped_lora/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/lora/lora-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

const std::byte* of_expert(DType format, const std::byte* matrices, int64_t step, int64_t place) {
  return matrices + row_bytes(format, place * step);
}

// A x of the pairs order[first] .. order[last - 1], up to kTile, for rows [begin, end) of A.
template <DType format>
void shrink_tile(const GroupedLoraOp::Args& args, int64_t first, int64_t last, int64_t begin, int64_t end, float* inner,
                 int64_t stride) {
  const Routing& routing = args.routing;
  while (first < last) {
    const LoraWeights* w = args.of_pair(routing.order[first]);
    const int32_t expert = routing.chosen[routing.order[first]];
    const float* x[kTile];
    float* out[kTile];
    int64_t same = 0;
    for (; first + same < last; ++same) {
      const int64_t pair = routing.order[first + same];
      if (args.of_pair(pair) != w || routing.chosen[pair] != expert) break;
      x[same] = args.x.row<float>(args.x_row(pair));
      out[same] = inner + pair * stride;
    }
    first += same;
    const int64_t place = w == nullptr ? -1 : w->place_of(expert - routing.first);
    if (place < 0) continue;
    const std::byte* a = of_expert(format, w->a, w->a_step, place);
    shrink_rows<format>(x, same, a, args.x.cols, begin, std::min<int64_t>(end, w->rank), out);
  }
}

// The columns [begin, end) of what one pair adds to its row of y.
template <DType format>
void expand(const GroupedLoraOp::Args& args, int64_t pair, int64_t begin, int64_t end, const float* inner, float* y) {
  const LoraWeights* w = args.of_pair(pair);
  const int64_t expert = args.routing.chosen[pair] - args.routing.first;
  if (w == nullptr || expert < 0 || expert >= args.routing.groups) return;
  const int64_t place = w->place_of(expert);
  if (place < 0) return;
  const float scale = args.sum ? args.routing.weights[pair] : 1;
  expand_parts<format>(*w, of_expert(format, w->b, w->b_step, place), inner, scale, begin, end, y);
}

template <DType format>
void adapt(const GroupedLoraOp::Args& args, const Executor& executor) {
  const Routing& routing = args.routing;
  const int64_t per_row = routing.per_row, k = args.x.cols;
  int64_t rank = 0;
  for (int64_t row = 0; row < routing.rows; ++row) {
    if (const LoraWeights* w = args.of_pair(row * per_row)) rank = std::max<int64_t>(rank, w->rank);
  }
  if (rank == 0) return;
  auto* inner = reinterpret_cast<float*>(executor.workspace);  // [pairs][rank]
  const int64_t first = routing.offsets[0], pairs = routing.offsets[routing.groups] - first;
  const int64_t tiles = (pairs + kTile - 1) / kTile, of_a = (rank + kTile - 1) / kTile;
  for_rows(executor, tiles * of_a, kTile * kTile * k, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t at = task / of_a * kTile, j = task % of_a * kTile;
      shrink_tile<format>(args, first + at, first + std::min(at + kTile, pairs), j, j + kTile, inner, rank);
    }
  });
  // Without a sum each pair is a row of y of its own.
  const int64_t each = args.sum ? per_row : 1, blocks = (args.y.cols + kColumns - 1) / kColumns;
  for_rows(executor, args.y.rows * blocks, kColumns * rank * each, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / blocks, column = task % blocks * kColumns;
      const int64_t stop = std::min(column + kColumns, args.y.cols);
      for (int64_t pair = row * each; pair < (row + 1) * each; ++pair)
        expand<format>(args, pair, column, stop, inner + pair * rank, args.y.row<float>(row));
    }
  });
}

class SimdGroupedLora final : public Kernel<GroupedLoraOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.isa.has(kTargetIsa) && (p.format == DType::F32 || p.format == DType::BF16);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.pairs() * (p.n + p.k) * 16, 2, hardware);  // of rank 16
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return static_cast<size_t>(p.pairs() * p.most_rank()) * sizeof(float);
  }
  void run(const Args& args, const Executor& executor) const override {
    args.format == DType::F32 ? adapt<DType::F32>(args, executor) : adapt<DType::BF16>(args, executor);
  }
};

}  // namespace

const Kernel<GroupedLoraOp>* grouped_lora_kernel() {
  static const SimdGroupedLora kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<GroupedLoraOp> GroupedLoraOp::cpu() {
  return {MR_EACH_TARGET(grouped_lora_kernel), GroupedLoraOp::reference()};
}

}  // namespace millrace
#endif
