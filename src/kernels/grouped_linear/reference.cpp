#include <fmt/format.h>

#include <array>

#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/row_work.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// Elements of a weight row that are dequantized at once: whole blocks of every format.
constexpr int64_t kPiece = 256;

double dot(const WeightView& weights, int64_t row, const float* x) {
  std::array<float, kPiece> piece;
  double sum = 0;
  for (int64_t at = 0; at < weights.cols; at += kPiece) {
    const int64_t count = std::min(kPiece, weights.cols - at);
    dequantize_row(weights.dtype, weights.row(row) + row_bytes(weights.dtype, at), piece.data(), count);
    for (int64_t i = 0; i < count; ++i) sum += double(piece[static_cast<size_t>(i)]) * x[at + i];
  }
  return sum;
}

class ReferenceGroupedLinear final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override { return scalar_work_us(p.pairs * p.n * p.k); }

  void run(const Args& args, const Executor& executor) const override {
    const int64_t n = args.y.cols;
    for_rows(executor, args.y.rows, n * args.x.cols, [&](int64_t begin, int64_t end) {
      for (int64_t pair = begin; pair < end; ++pair) {
        const int64_t group = args.groups[pair];
        const float* x = args.x.row<float>(pair / args.per_row);
        float* y = args.y.row<float>(pair);
        for (int64_t i = 0; i < n; ++i) y[i] = group < 0 ? 0.0f : float(dot(args.weights, group * n + i, x));
      }
    });
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* GroupedLinearOp::reference() {
  static const ReferenceGroupedLinear kernel;
  return &kernel;
}

KernelList<GroupedLinearOp> GroupedLinearOp::cpu() { return {reference()}; }

std::string to_string(const GroupedLinearOp::Problem& p) {
  return fmt::format("grouped_linear {} {}x{}x{} pairs={}", name(p.format), p.groups, p.n, p.k, p.pairs);
}

}  // namespace millrace
