#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/rows/rows.h"
#include "kernels/row_work.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// Elements of a weight row that are dequantized at once: whole blocks of every format.
constexpr int64_t kPiece = 256;

double dot(const GroupedWeights& weights, int64_t group, int64_t row, const float* x) {
  const size_t bytes = row_bytes(weights.format, weights.k);
  const bool apart = std::ssize(weights.data) == 2 * weights.groups;  // gates, then ups
  const int64_t part = apart ? row / (weights.n / 2) : 0;
  const std::byte* from = weights.data[static_cast<size_t>(part * weights.groups + group)] +
                          static_cast<size_t>(row - part * (weights.n / 2)) * bytes;
  std::array<float, kPiece> piece;
  double sum = 0;
  for (int64_t at = 0; at < weights.k; at += kPiece) {
    const int64_t count = std::min(kPiece, weights.k - at);
    dequantize_row(weights.format, from + row_bytes(weights.format, at), piece.data(), count);
    for (int64_t i = 0; i < count; ++i) sum += double(piece[static_cast<size_t>(i)]) * x[at + i];
  }
  return sum;
}

// Row i of the pair's matrix times x, plus the bias.
double product(const GroupedLinearArgs& args, int64_t pair, int64_t i, const float* x) {
  const int64_t group = args.routing.chosen[pair] - args.routing.first, n = args.weights->n;
  return dot(*args.weights, group, i, x) + (args.bias != nullptr ? args.bias[group * n + i] : 0);
}

bool is_skipped(const Routing& routing, int64_t pair) {
  const int64_t group = routing.chosen[pair] - routing.first;
  return group < 0 || group >= routing.groups;
}

float gated(const GroupedLinearArgs& args, float gate, float up) {
  const auto matrix = [](float& value) { return Matrix{DType::F32, 1, 1, 1, reinterpret_cast<std::byte*>(&value)}; };
  const Matrix x = matrix(gate), factor = matrix(up);
  ActivationOp::reference()->run({args.activation, x, &factor, x, args.clamp}, {});
  return gate;
}

class ReferenceGroupedLinear final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return p.layout == rows_layout().name() && p.x == DType::F32 && hardware.device == DeviceKind::Cpu;
  }
  double estimate_us(const Problem& p, const Hardware&) const override { return scalar_work_us(p.pairs() * p.n * p.k); }

  void run(const Args& args, const Executor& executor) const override {
    const int64_t elements = args.weights->n * args.weights->k * args.routing.per_row;
    for_rows(executor, args.routing.rows, elements, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) args.sum ? add_row(args, row) : fill_pairs(args, row);
    });
  }

 private:
  static void fill_pairs(const Args& args, int64_t row) {
    const int64_t per_row = args.routing.per_row, half = args.weights->n / 2;
    const float* x = args.x.row<float>(row);
    for (int64_t pair = row * per_row; pair < (row + 1) * per_row; ++pair) {
      if (is_skipped(args.routing, pair)) continue;
      float* y = args.y.row<float>(pair);
      for (int64_t i = 0; i < args.y.cols; ++i) {
        y[i] = static_cast<float>(product(args, pair, i, x));
        if (args.gated) y[i] = gated(args, y[i], static_cast<float>(product(args, pair, half + i, x)));
      }
    }
  }

  static void add_row(const Args& args, int64_t row) {
    const int64_t per_row = args.routing.per_row;
    for (int64_t i = 0; i < args.y.cols; ++i) {
      double sum = 0;
      for (int64_t pair = row * per_row; pair < (row + 1) * per_row; ++pair) {
        if (is_skipped(args.routing, pair)) continue;
        sum += args.routing.weights[pair] * product(args, pair, i, args.x.row<float>(pair));
      }
      args.y.row<float>(row)[i] += static_cast<float>(sum);
    }
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* GroupedLinearOp::reference() {
  static const ReferenceGroupedLinear kernel;
  return &kernel;
}

double GroupedLinearProblem::expected_active() const {
  return double(groups) * (1 - std::pow(1 - double(per_row) / double(std::max(groups, all_groups)), double(rows)));
}

double GroupedLinearProblem::expected_pairs() const {
  return double(pairs()) * double(groups) / double(std::max(groups, all_groups));
}

GroupedLinearProblem GroupedLinearProblem::bucketed() const {
  GroupedLinearProblem problem = *this;
  problem.rows = bucket_rows(rows);
  return problem;
}

std::string to_string(const GroupedLinearProblem& p) {
  const std::string part = p.all_groups > p.groups ? fmt::format(" of={}", p.all_groups) : "";
  return fmt::format("grouped_linear {} {} {} {}x{}x{} rows={} per_row={} x={}{}{}{}{}{}", name(p.format), p.layout,
                     p.precision == Precision::Exact ? "exact" : "fast", p.groups, p.n, p.k, p.rows, p.per_row,
                     name(p.x), p.gated ? " gated" : "", p.sum ? " sum" : "", p.invariant ? " invariant" : "", part,
                     p.by_head ? " by_head" : "");
}

}  // namespace millrace
