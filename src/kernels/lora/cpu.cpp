#include <algorithm>

#include "kernels/lora/lora.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lora/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/lora/lora-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

// A x of up to kTile rows from `row` on, for rows [begin, end) of A.
template <DType format>
void shrink_tile(const LoraOp::Args& args, int64_t row, int64_t begin, int64_t end, float* inner, int64_t stride) {
  const int64_t last = std::min(row + kTile, args.y.rows);
  while (row < last) {
    const LoraWeights* w = args.of_row(row);
    const float* x[kTile];
    float* out[kTile];
    int64_t same = 0;
    for (; row + same < last && args.of_row(row + same) == w; ++same) {
      x[same] = args.x.row<float>(row + same);
      out[same] = inner + (row + same) * stride;
    }
    if (w != nullptr) shrink_rows<format>(x, same, w->a, args.x.cols, begin, std::min<int64_t>(end, w->rank), out);
    row += same;
  }
}

// The columns [begin, end) of one row of y.
template <DType format>
void expand(const LoraOp::Args& args, int64_t row, int64_t begin, int64_t end, const float* inner) {
  const LoraWeights* w = args.of_row(row);
  if (w == nullptr) return;
  float looked_up[LoraWeights::kMostParts * LoraWeights::kMostRank + kLanes];
  if (args.x.cols == 0) {
    widen_row<format>(w->a + static_cast<size_t>(args.id(row)) * row_bytes(format, w->rank), w->rank, looked_up);
    inner = looked_up;
  }
  expand_parts<format>(*w, w->b, inner, args.scale, begin, end, args.y.row<float>(row));
}

template <DType format>
void adapt(const LoraOp::Args& args, const Executor& executor) {
  const int64_t rows = args.y.rows, k = args.x.cols;
  int64_t rank = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (const LoraWeights* w = args.of_row(row)) rank = std::max<int64_t>(rank, w->rank);
  }
  if (rank == 0) return;
  auto* inner = reinterpret_cast<float*>(executor.workspace);  // [rows][rank]
  if (k > 0) {
    const int64_t tiles = (rows + kTile - 1) / kTile, blocks = (rank + kTile - 1) / kTile;
    for_rows(executor, tiles * blocks, kTile * kTile * k, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t j = task % blocks * kTile;
        shrink_tile<format>(args, task / blocks * kTile, j, j + kTile, inner, rank);
      }
    });
  }
  const int64_t blocks = (args.y.cols + kColumns - 1) / kColumns;
  for_rows(executor, rows * blocks, kColumns * rank, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / blocks, column = task % blocks * kColumns;
      expand<format>(args, row, column, std::min(column + kColumns, args.y.cols), inner + row * rank);
    }
  });
}

class SimdLora final : public Kernel<LoraOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.isa.has(kTargetIsa) && (p.format == DType::F32 || p.format == DType::BF16) && !p.alternating;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * (p.n + p.k) * 16, 2, hardware);  // of rank 16
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return static_cast<size_t>(p.rows * p.most_rank()) * sizeof(float);
  }
  void run(const Args& args, const Executor& executor) const override {
    args.format == DType::F32 ? adapt<DType::F32>(args, executor) : adapt<DType::BF16>(args, executor);
  }
};

}  // namespace

const Kernel<LoraOp>* lora_kernel() {
  static const SimdLora kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<LoraOp> LoraOp::cpu() { return {MR_EACH_TARGET(lora_kernel), LoraOp::reference()}; }

}  // namespace millrace
#endif
