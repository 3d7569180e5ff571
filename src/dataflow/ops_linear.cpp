// Linear layers: their kernels are decided before the first step, and norms in front of them may be taken along.
#include <algorithm>

#include "dataflow/buckets.h"
#include "dataflow/ops_watch.h"

namespace millrace {
namespace {

// Rows that a batch-invariant pass computes at least: on the CPU a single one would take other kernels, on a GPU every
// linear layer works on tiles of so many. A decode is bound by the weights up to there.
constexpr int64_t kLeastInvariantRows = 2, kInvariantTile = 64;

}  // namespace

LinearProblem Ops::problem_of(const LinearWeights& w, int64_t rows, bool gated) const {
  return {w.format, w.layout->name(), options_.precision, w.n, w.k, rows, options_.working, gated};
}

void Ops::plan(Linear& linear, int64_t rows) {
  for (auto& part : linear.parts) {
    if (options_.batch_invariant) {
      device_.is_host() ? plan_invariant(part, rows, linear.gated) : plan_tiles(part, linear.gated);
      continue;
    }
    for (const int64_t m : row_buckets(rows)) {
      const LinearProblem problem = problem_of(part.weights, m, linear.gated);
      const LinearKernel* kernel = linear_.choose(problem);
      take(part, problem, kernel);
      if (kernel->shares_between(problem, hardware_)) {
        const int64_t squares = m * problem.k / NormAhead::kPart;
        squares_needed_ = std::max(squares_needed_, static_cast<size_t>(squares) * sizeof(float));
      }
    }
  }
}

// The kernel that is fastest over a mix of decodes and prompts, among those that run every number of rows from two on.
void Ops::plan_invariant(Linear::Part& part, int64_t rows, bool gated) {
  part.least_rows = kLeastInvariantRows;
  std::vector<LinearProblem> problems;
  for (const int64_t m : row_buckets(std::max(rows, part.least_rows))) {
    if (m >= part.least_rows) problems.push_back(problem_of(part.weights, m, gated));
  }
  const LinearKernel* best = nullptr;
  double least_us = 0;
  for (const auto* kernel : kernels_.linear) {
    const auto runs = [&](const LinearProblem& problem) { return kernel->can_run(problem, hardware_); };
    if (!std::all_of(problems.begin(), problems.end(), runs)) continue;
    double us = 0;
    for (const auto& problem : problems) us += kernel->estimate_us(problem, hardware_) / static_cast<double>(problem.m);
    if (best != nullptr && us >= least_us) continue;
    best = kernel;
    least_us = us;
  }
  for (const auto& problem : problems) take(part, problem, best);
}

void Ops::plan_tiles(Linear::Part& part, bool gated) {
  part.tile_rows = kInvariantTile;
  const LinearProblem problem = problem_of(part.weights, part.tile_rows, gated);
  take(part, problem, linear_.choose(problem));
}

void Ops::take(Linear::Part& part, const LinearProblem& problem, const LinearKernel* kernel) {
  MR_ASSERT(kernel != nullptr);  // the reference runs everything
  part.plan.emplace_back(problem.m, kernel);
  workspace_needed_ = std::max(workspace_needed_, kernel->workspace_bytes(problem, hardware_));
}

int64_t Ops::padded_rows(int64_t rows) const {
  if (!options_.batch_invariant) return rows;
  if (device_.is_host()) return std::max(rows, kLeastInvariantRows);
  return (rows + kInvariantTile - 1) / kInvariantTile * kInvariantTile;
}

const LinearKernel* Ops::planned(const Linear::Part& part, int64_t rows) const {
  const int64_t bucket = part.tile_rows > 0 ? part.tile_rows : bucket_rows(std::max(rows, part.least_rows));
  for (const auto& [m, kernel] : part.plan) {
    if (m == bucket) return kernel;
  }
  return nullptr;
}

// All rows at once, or in whole tiles.
void Ops::run_part(const Linear::Part& part, LinearArgs args) {
  const Matrix x = args.x, y = args.y;
  const int64_t rows = std::max(x.rows, part.least_rows), step = part.tile_rows > 0 ? part.tile_rows : rows;
  const LinearKernel* kernel = planned(part, x.rows);
  MR_ASSERT(kernel != nullptr && (x.dtype == options_.working || args.norm != nullptr));  // what is planned for
  for (int64_t first = 0; first < rows; first += step) {
    args.x = x.rows_from(first, step);
    args.y = y.rows_from(first, step);
    if (times_ == nullptr) {
      kernel->run(args, executor_);
    } else {
      run_watched(linear_, *kernel, problem_of(part.weights, step, args.gated), args, executor_);
    }
  }
}

// Part after part; `fill` completes their arguments.
template <class Fill>
void Ops::run_parts(const Linear& linear, Matrix x, Matrix y, Fill fill) {
  int64_t column = 0;
  for (const Linear::Part& part : linear.parts) {
    const auto& w = part.weights;
    const float* bias = linear.bias != nullptr ? linear.bias + column : nullptr;
    LinearArgs args{x, &w, bias, y.columns(column, linear.gated ? w.n / 2 : w.n), false, linear.gated};
    args.invariant = options_.batch_invariant;
    fill(args);
    run_part(part, args);
    column += w.n;
  }
}

void Ops::linear(Matrix x, const Linear& linear, Matrix y, bool accumulate) {
  if (x.rows == 0) return;  // the end of a prompt's chunk that wants no logits
  run_parts(linear, x, y, [&](LinearArgs& args) { args.accumulate = accumulate; });
}

// Norms of q and k, and LayerNorm, are kernels of their own; and what is forced stays apart.
bool Ops::is_plain_norm(const NormOp::Args& norm) const {
  return norm.x.dtype == DType::F32 && norm.kind == NormKind::Rms && norm.groups == 1 && norm.weight != nullptr &&
         !is_forced(NormOp::kName);
}

// Whether takes(kernel, problem) holds for the kernels of all parts.
template <class Takes>
bool Ops::all_parts(const Linear& linear, int64_t rows, Takes takes) const {
  return std::all_of(linear.parts.begin(), linear.parts.end(), [&](const Linear::Part& part) {
    if (part.tile_rows > 0 || part.least_rows > rows) return false;
    const LinearKernel* kernel = planned(part, rows);
    return kernel != nullptr && takes(*kernel, problem_of(part.weights, rows, linear.gated));
  });
}

bool Ops::takes_norm_along(const NormOp::Args& norm, const Linear& linear) const {
  // On the CPU several parts would each compute it.
  if (!is_plain_norm(norm) || (device_.is_host() && linear.parts.size() > 1)) return false;
  return all_parts(linear, norm.x.rows, [&](const LinearKernel& kernel, const LinearProblem& problem) {
    return kernel.takes_along(problem, hardware_);
  });
}

bool Ops::shares_norm(const Linear& linear, int64_t rows) const {
  return all_parts(linear, rows, [&](const LinearKernel& kernel, const LinearProblem& problem) {
    return kernel.shares_between(problem, hardware_);
  });
}

void Ops::add_linear(Matrix x, const Linear& linear, Matrix y, const NextNorm& next) {
  shared_ = {};
  const bool shares = is_plain_norm(next.norm) && x.dtype == options_.working && linear.parts.size() == 1 &&
                      shares_norm(linear, x.rows) && shares_norm(*next.linear, x.rows);
  if (!shares) return this->linear(x, linear, y, /*accumulate=*/true);
  run_parts(linear, x, y, [&](LinearArgs& args) {
    args.accumulate = true;
    args.ahead = {next.norm.weight, next.norm.out, squares_};
  });
  shared_ = next;
}

void Ops::linear(const NormOp::Args& norm, const Linear& linear, Matrix y) {
  if (norm.x.rows == 0) return;
  const NormOp::Args& half = shared_.norm;
  if (shared_.linear == &linear && half.x.data == norm.x.data && half.x.rows == norm.x.rows &&
      half.weight == norm.weight) {
    run_parts(linear, half.out, y, [&](LinearArgs& args) {
      args.epsilon = norm.epsilon;
      args.squares = squares_;
    });
    shared_ = {};
    return;
  }
  if (!takes_norm_along(norm, linear)) {
    this->norm(norm);
    return this->linear(norm.out, linear, y);
  }
  // Parts of different formats (q, k and v of some files) each compute the norm: less than a kernel of its own.
  run_parts(linear, norm.x, y, [&](LinearArgs& args) {
    args.norm = norm.weight;
    args.epsilon = norm.epsilon;
    args.normed = norm.out;
  });
}

}  // namespace millrace
