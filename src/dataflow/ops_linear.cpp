// Linear layers. A dry pass plans a kernel for each bucket of rows. Norms before and between linear layers are fused if
// the kernels support it.
#include <algorithm>
#include <utility>

#include "dataflow/buckets.h"
#include "dataflow/ops.h"
#include "hardware/ceilings.h"

namespace millrace {
namespace {

// Minimum rows of a batch-invariant pass. On the CPU a single row would select other kernels. On a GPU every linear
// layer runs on tiles of 64 rows; up to 64 rows decode is bound by reading the weights.
constexpr int64_t kLeastInvariantRows = 2, kInvariantTile = 64;

}  // namespace

LinearProblem Ops::problem_of(const LinearWeights& w, int64_t rows, bool gated) const {
  return {w.format, w.layout->name(), options_.precision, w.n, w.k, rows, options_.working, gated};
}

void Ops::plan(const Linear& linear, int64_t rows) {
  if (std::find(linears_.begin(), linears_.end(), &linear) == linears_.end()) linears_.push_back(&linear);
  for (const auto& part : linear.parts) plan(part, rows, linear.gated);
}

void Ops::plan(const Linear::Part& part, int64_t rows, bool gated) {
  if (planned(part, rows) != nullptr) return;
  if (options_.batch_invariant) return device_.is_host() ? plan_invariant(part, rows, gated) : plan_tiles(part, gated);
  const LinearProblem problem = problem_of(part.weights, bucket_rows(rows), gated);
  keep(part, problem, planner<LinearOp>().plan(problem));
}

// The fastest kernel over a mix of decode and prefill, among those that run every number of rows from two on. Dry
// passes begin with the largest step, so `rows` is the maximum for this layer. Kernels round differently, so the choice
// does not depend on the number of threads.
void Ops::plan_invariant(const Linear::Part& part, int64_t rows, bool gated) {
  part.least_rows = kLeastInvariantRows;
  std::vector<std::pair<LinearProblem, double>> problems;
  for (const int64_t m : row_buckets(std::max(rows, part.least_rows))) {
    if (m >= part.least_rows) problems.emplace_back(problem_of(part.weights, m, gated), 1 / static_cast<double>(m));
  }
  const LinearKernel* best = fastest_for_all(kernels_.of<LinearOp>(), one_thread_of(hardware_), problems);
  for (const auto& [problem, weight] : problems) keep(part, problem, best);
}

void Ops::plan_tiles(const Linear::Part& part, bool gated) {
  part.tile_rows = kInvariantTile;
  const LinearProblem problem = problem_of(part.weights, part.tile_rows, gated);
  keep(part, problem, planner<LinearOp>().plan(problem));
}

void Ops::keep(const Linear::Part& part, const LinearProblem& problem, const LinearKernel* kernel) {
  MR_ASSERT(kernel != nullptr);  // the reference kernel runs every problem
  const std::pair<int64_t, const LinearKernel*> entry{problem.m, kernel};
  part.plan.insert(std::upper_bound(part.plan.begin(), part.plan.end(), entry), entry);
  workspace_needed_ = std::max(workspace_needed_, kernel->workspace_bytes(problem, hardware_));
  if (kernel->shares_between(problem, hardware_)) {
    const int64_t squares = problem.m * problem.k / NormAhead::kPart;
    squares_needed_ = std::max(squares_needed_, static_cast<size_t>(squares) * sizeof(float));
  }
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

// Runs all rows at once, or tile by tile.
void Ops::run_part(const Linear::Part& part, LinearArgs args) {
  const Matrix x = args.x, y = args.y;
  const int64_t rows = std::max(x.rows, part.least_rows), step = part.tile_rows > 0 ? part.tile_rows : rows;
  const LinearKernel* kernel = planned(part, x.rows);
  MR_ASSERT(kernel != nullptr && (x.dtype == options_.working || args.norm != nullptr));  // as planned
  for (int64_t first = 0; first < rows; first += step) {
    args.x = x.rows_from(first, step);
    args.y = y.rows_from(first, step);
    run<LinearOp>(*kernel, problem_of(part.weights, step, args.gated), args, executor_);
  }
}

// Runs part after part; `fill` completes the arguments of each.
template <class Fill>
void Ops::run_parts(const Linear& linear, Matrix x, Matrix y, Fill fill) {
  int64_t column = 0;
  for (const Linear::Part& part : linear.parts) {
    const auto& w = part.weights;
    const float* bias = linear.bias != nullptr ? linear.bias->data + column : nullptr;
    LinearArgs args{x, &w, bias, y.columns(column, linear.gated ? w.n / 2 : w.n), false, linear.gated};
    args.invariant = options_.batch_invariant;
    fill(args);
    run_part(part, args);
    column += w.n;
  }
}

// With the weights of each part in a stage instead of their own memory.
void Ops::run_parts_from(std::span<std::byte* const> stage, const Linear& linear, Matrix x, Matrix y, bool accumulate) {
  if (is_dry()) plan(linear, x.rows);
  LinearWeights staged;
  size_t part = 0;
  run_parts(linear, x, y, [&](LinearArgs& args) {
    staged = *args.weights;
    staged.data = stage[part++];
    args.weights = &staged;
    args.accumulate = accumulate;
  });
}

void Ops::linear(Matrix x, const Linear& linear, Matrix y) {
  launch_pending();
  if (x.rows == 0) return;  // a chunk in the middle of a prompt needs no logits
  if (!adapts(linear)) return launch(x, linear, y);
  launch_base(x, linear, y);
  add_adapters({x}, linear, y);
}

void Ops::launch(Matrix x, const Linear& linear, Matrix y) {
  if (linear.on_host && host_ != nullptr) return linear_on_host(x, linear, y, false);
  if (shows_inputs()) inputs_->see(linear, x);
  if (is_dry()) plan(linear, x.rows);
  run_parts(linear, x, y, [](LinearArgs&) {});
}

void Ops::add_linear(Matrix x, const Linear& linear, Matrix y) {
  launch_pending();
  if (x.rows == 0) return;
  if (adapts(linear)) add_adapters({x}, linear, y);  // first, because the layer may be launched with the next norm
  if (linear.on_host && host_ != nullptr) return linear_on_host(x, linear, y, true);
  if (shows_inputs()) inputs_->see(linear, x);
  if (is_dry()) plan(linear, x.rows);
  pending_ = {x, y, &linear};
}

void Ops::launch_pending() {
  if (pending_.linear == nullptr) return;
  const PendingAdd add = std::exchange(pending_, {});
  run_parts(*add.linear, add.x, add.y, [](LinearArgs& args) { args.accumulate = true; });
}

// Norms of q and k, LayerNorm and forced norm kernels are never fused.
bool Ops::is_plain_norm(const NormOp::Args& norm) const {
  return norm.x.dtype == DType::F32 && norm.kind == NormKind::Rms && norm.groups == 1 && norm.weight != nullptr &&
         !is_forced(NormOp::kName);
}

// True if takes(kernel, problem) holds for the kernels of all parts.
template <class Takes>
bool Ops::all_parts(const Linear& linear, int64_t rows, Takes takes) const {
  return std::all_of(linear.parts.begin(), linear.parts.end(), [&](const Linear::Part& part) {
    if (part.tile_rows > 0 || part.least_rows > rows) return false;
    const LinearKernel* kernel = planned(part, rows);
    return kernel != nullptr && takes(*kernel, problem_of(part.weights, rows, linear.gated));
  });
}

bool Ops::takes_norm_along(const NormOp::Args& norm, const Linear& linear) const {
  // On the CPU each part would compute the norm again.
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

bool Ops::shares_norm_with_pending(const NormOp::Args& norm, const Linear& linear) const {
  const PendingAdd& add = pending_;
  return add.linear != nullptr && add.y.data == norm.x.data && add.y.rows == norm.x.rows && is_plain_norm(norm) &&
         add.x.dtype == options_.working && add.linear->parts.size() == 1 && shares_norm(*add.linear, add.x.rows) &&
         shares_norm(linear, norm.x.rows);
}

// The host's kernels and observers of inputs read the norm's result.
bool Ops::reads_norm(const Linear& linear) const { return (linear.on_host && host_ != nullptr) || shows_inputs(); }

// The deferred layer leaves the first half of the norm for `linear`.
void Ops::run_sharing_norm(const NormOp::Args& norm, const Linear& linear, Matrix y) {
  const PendingAdd add = std::exchange(pending_, {});
  run_parts(*add.linear, add.x, add.y, [&](LinearArgs& args) {
    args.accumulate = true;
    args.ahead = {norm.weight, norm.out, squares_};
  });
  run_parts(linear, norm.out, y, [&](LinearArgs& args) {
    args.epsilon = norm.epsilon;
    args.squares = squares_;
  });
}

void Ops::linear(const NormOp::Args& norm, const Linear& linear, Matrix y) {
  if (norm.x.rows == 0) return launch_pending();
  if (adapts(linear)) return add_adapters(launch_base(norm, linear, y), linear, y);
  if (reads_norm(linear)) return norm_then_linear(norm, linear, y);
  if (is_dry()) plan(linear, norm.x.rows);
  if (mode_ == Mode::Plan)
    planner<NormOp>().plan(problem_of(norm));  // other row counts of the bucket may run the norm as a separate kernel
  if (shares_norm_with_pending(norm, linear)) return run_sharing_norm(norm, linear, y);
  launch_pending();
  if (!takes_norm_along(norm, linear)) return norm_then_linear(norm, linear, y);
  // With several parts (q, k and v of different formats) each part computes the norm, which is cheaper than a separate
  // norm kernel.
  run_with_norm(norm, linear, y);
}

void Ops::norm_and_linear(const NormOp::Args& norm, const Linear& linear, Matrix y) {
  if (norm.x.rows == 0) return launch_pending();
  if (adapts(linear) || reads_norm(linear) || mode_ == Mode::Plan) return norm_then_linear(norm, linear, y);
  if (is_dry()) plan(linear, norm.x.rows);
  // On a GPU, kernels of F32 weights that take a norm along also write it.
  const bool keeps = !device_.is_host() && std::all_of(linear.parts.begin(), linear.parts.end(), [](const auto& part) {
    return part.weights.format == DType::F32;
  });
  if (!keeps || !takes_norm_along(norm, linear)) return norm_then_linear(norm, linear, y);
  launch_pending();
  run_with_norm(norm, linear, y);
}

void Ops::norm_then_linear(const NormOp::Args& norm, const Linear& linear, Matrix y) {
  this->norm(norm);
  this->linear(norm.out, linear, y);
}

void Ops::run_with_norm(const NormOp::Args& norm, const Linear& linear, Matrix y) {
  run_parts(linear, norm.x, y, [&](LinearArgs& args) {
    args.norm = norm.weight;
    args.epsilon = norm.epsilon;
    args.normed = norm.out;
  });
}

}  // namespace millrace
