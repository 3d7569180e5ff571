#include <algorithm>

#include "kernels/lora/lora.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lora/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kTile = 4;       // rows of x, and rows of A, that share loads
constexpr int64_t kColumns = 512;  // of y, for one task
constexpr int64_t kVectors = 4;    // of y, in registers

// The dot products of R rows of x and J rows of A. Each has one accumulator, whatever R and J are.
template <DType format, int R, int J>
void dots(const LoraOp::Args& args, const LoraWeights& w, int64_t row, int64_t j, float* out, int64_t out_stride) {
  const int64_t k = args.x.cols;
  const size_t a_bytes = row_bytes(format, k);
  const std::byte* a = w.a + static_cast<size_t>(j) * a_bytes;
  F32Vec sums[R][J];
  for (auto& of_row : sums) std::fill_n(of_row, J, hn::Zero(kF32));
  const auto add = [&](auto load_x, auto load_a) HWY_ATTR {
    F32Vec as[J];
    for (int i = 0; i < J; ++i) as[i] = load_a(a + static_cast<size_t>(i) * a_bytes);
    for (int r = 0; r < R; ++r) {
      const F32Vec x = load_x(reinterpret_cast<const std::byte*>(args.x.row<float>(row + r)));
      for (int i = 0; i < J; ++i) sums[r][i] = hn::MulAdd(x, as[i], sums[r][i]);
    }
  };
  int64_t c = 0;
  for (; c + kLanes <= k; c += kLanes) {
    add([&](const std::byte* x) HWY_ATTR { return row_at<DType::F32>(x, c); },
        [&](const std::byte* from) HWY_ATTR { return row_at<format>(from, c); });
  }
  if (c < k) {
    add([&](const std::byte* x) HWY_ATTR { return row_end<DType::F32>(x, c, k); },
        [&](const std::byte* from) HWY_ATTR { return row_end<format>(from, c, k); });
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < J; ++i) out[r * out_stride + i] = sum_of(sums[r][i]);
  }
}

template <DType format, int R>
void dots_of_rows(const LoraOp::Args& args, const LoraWeights& w, int64_t row, int64_t begin, int64_t end, float* out,
                  int64_t out_stride) {
  int64_t j = begin;
  for (; j + kTile <= end; j += kTile) dots<format, R, kTile>(args, w, row, j, out + j, out_stride);
  for (; j < end; ++j) dots<format, R, 1>(args, w, row, j, out + j, out_stride);
}

// A x of up to kTile rows from `row` on, for rows [begin, end) of A.
template <DType format>
void shrink_tile(const LoraOp::Args& args, int64_t row, int64_t begin, int64_t end, float* inner, int64_t stride) {
  const int64_t last = std::min(row + kTile, args.y.rows);
  while (row < last) {
    const LoraWeights* w = args.of_row(row);
    int64_t same = row + 1;
    while (same < last && args.of_row(same) == w) ++same;
    const int64_t stop = w != nullptr ? std::min<int64_t>(end, w->rank) : begin;
    if (stop > begin && same - row == kTile) {
      dots_of_rows<format, kTile>(args, *w, row, begin, stop, inner + row * stride, stride);
    } else if (stop > begin) {
      for (int64_t r = row; r < same; ++r)
        dots_of_rows<format, 1>(args, *w, r, begin, stop, inner + r * stride, stride);
    }
    row = same;
  }
}

// y[begin .. end) += scale * B inner, for columns within one part.
template <DType format>
void expand_part(const std::byte* b, int64_t cols, int64_t rank, const float* inner, float scale, int64_t begin,
                 int64_t end, float* y) {
  const size_t b_bytes = row_bytes(format, cols);
  const F32Vec factor = broadcast(scale);
  int64_t c = begin;
  for (; c + kVectors * kLanes <= end; c += kVectors * kLanes) {
    F32Vec sums[kVectors];
    std::fill_n(sums, kVectors, hn::Zero(kF32));
    for (int64_t j = 0; j < rank; ++j) {
      const F32Vec t = broadcast(inner[j]);
      const std::byte* row = b + static_cast<size_t>(j) * b_bytes;
      for (int v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(t, row_at<format>(row, c + v * kLanes), sums[v]);
    }
    for (int v = 0; v < kVectors; ++v) store(hn::MulAdd(factor, sums[v], load(y + c + v * kLanes)), y + c + v * kLanes);
  }
  for (; c < end; c += kLanes) {
    const int64_t count = std::min(kLanes, end - c);
    F32Vec sum = hn::Zero(kF32);
    for (int64_t j = 0; j < rank; ++j)
      sum = hn::MulAdd(broadcast(inner[j]), row_end<format>(b + static_cast<size_t>(j) * b_bytes, c, c + count), sum);
    alignas(64) float values[kLanes];
    store(hn::Mul(factor, sum), values);
    for (int64_t i = 0; i < count; ++i) y[c + i] += values[i];
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
  for (int p = 0; p < w->parts; ++p) {
    const LoraWeights::Part& part = w->part[p];
    const int64_t first = std::max<int64_t>(begin, part.column) - part.column;
    const int64_t last = std::min<int64_t>(end, part.column + part.cols) - part.column;
    if (first >= last || part.rank == 0) continue;
    expand_part<format>(w->b + row_bytes(format, part.at), part.cols, part.rank, inner + part.first, args.scale, first,
                        last, args.y.row<float>(row) + part.column);
  }
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
