#include "dataflow/ops.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "dataflow/buckets.h"
#include "dataflow/roofline.h"

namespace millrace {
namespace {

// Rows that a batch-invariant pass computes at least: on the CPU a single one would take other kernels, on a GPU every
// linear layer works on tiles of so many. A decode is bound by the weights up to there.
constexpr int64_t kLeastInvariantRows = 2, kInvariantTile = 64;

std::string forced_kernel(const OpsOptions& options, std::string_view op) {
  const auto found = options.forced.find(std::string(op));
  return found == options.forced.end() ? "" : found->second;
}

void check_forced_ops(const OpsOptions& options) {
  static const std::set<std::string_view> known{
      LinearOp::kName,     AttentionOp::kName, NormOp::kName,        RopeOp::kName,    RopeAnglesOp::kName,
      ActivationOp::kName, EmbeddingOp::kName, ElementwiseOp::kName, KvWriteOp::kName, RopeWriteOp::kName,
      ArgmaxOp::kName,     SampleOp::kName,    ScoreRangeOp::kName};
  for (const auto& [op, kernel] : options.forced) {
    if (!known.contains(op)) fail(ErrorKind::Usage, "--kernel {}={}: no such op", op, kernel);
  }
}

}  // namespace

Ops::Ops(const KernelSet& kernels, Device& device, ThreadPool& pool, const PlanCache* plans, OpsOptions options)
    : kernels_(kernels),
      device_(device),
      hardware_(device.hardware()),
      options_(std::move(options)),
      // From compute capability 9.0 on kernels start while the ones before them drain.
      executor_{&pool, nullptr, device.queue(), &device.hardware(), device.hardware().architecture >= 90},
      attention_executor_(executor_),
      linear_(kernels.linear, hardware_, plans, forced_kernel(options_, LinearOp::kName)),
      attention_(kernels.attention, hardware_, plans, forced_kernel(options_, AttentionOp::kName)),
      norm_(kernels.norm, hardware_, plans, forced_kernel(options_, NormOp::kName)),
      rope_angles_(kernels.rope_angles, hardware_, plans, forced_kernel(options_, RopeAnglesOp::kName)),
      rope_(kernels.rope, hardware_, plans, forced_kernel(options_, RopeOp::kName)),
      activation_(kernels.activation, hardware_, plans, forced_kernel(options_, ActivationOp::kName)),
      embedding_(kernels.embedding, hardware_, plans, forced_kernel(options_, EmbeddingOp::kName)),
      elementwise_(kernels.elementwise, hardware_, plans, forced_kernel(options_, ElementwiseOp::kName)),
      kv_write_(kernels.kv_write, hardware_, plans, forced_kernel(options_, KvWriteOp::kName)),
      rope_write_(kernels.rope_write, hardware_, plans, forced_kernel(options_, RopeWriteOp::kName)),
      argmax_(kernels.argmax, hardware_, plans, forced_kernel(options_, ArgmaxOp::kName)),
      sample_(kernels.sample, hardware_, plans, forced_kernel(options_, SampleOp::kName)),
      score_range_(kernels.score_range, hardware_, plans, forced_kernel(options_, ScoreRangeOp::kName)) {
  check_forced_ops(options_);
}

template <class Op>
void Ops::dispatch(Planner<Op>& planner, const typename Op::Problem& problem, const typename Op::Args& args) {
  const Kernel<Op>* kernel = planner.choose(problem);
  MR_ASSERT(kernel != nullptr);  // every op has a reference that runs everything the models ask for
  if (times_ != nullptr) return run_watched(planner, *kernel, problem, args, executor_);
  kernel->run(args, executor_);
}

template <class Op>
void Ops::run_watched(const Planner<Op>& planner, const Kernel<Op>& kernel, const typename Op::Problem& problem,
                      const typename Op::Args& args, const Executor& executor) {
  if (watch_ == Watch::Expect) return times_->add(Op::kName, planner.expected_us(kernel, problem));
  if (watch_ == Watch::Roof) {
    if constexpr (requires { roof_us(problem, hardware_); }) times_->add(Op::kName, roof_us(problem, hardware_));
    return;
  }
  device_.finish();
  const auto start = std::chrono::steady_clock::now();
  kernel.run(args, executor);
  device_.finish();
  times_->add(Op::kName, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
}

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

// What small ops are planned for.
int64_t Ops::bucket(int64_t rows) const { return options_.batch_invariant ? 1 : bucket_rows(rows); }

// Where results may not depend on the batch, its size may not decide on the kernel.
AttentionProblem Ops::pinned(AttentionProblem problem) const {
  if (options_.batch_invariant) problem.sequences = problem.rows = problem.context = 1;
  problem.invariant = options_.batch_invariant;
  return problem.bucketed();
}

void Ops::plan(const AttentionProblem& largest) {
  for (auto problem : attention_buckets(largest)) {
    problem.invariant = options_.batch_invariant;
    const auto* kernel = attention_.choose(pinned(problem));
    if (kernel == nullptr) {
      fail(ErrorKind::Unsupported, "no attention kernel for head size {} with a {} KV cache; try --kv-type f16",
           largest.head_dim, name(largest.kv));
    }
    attention_workspace_needed_ = std::max(attention_workspace_needed_, kernel->workspace_bytes(problem, hardware_));
  }
}

void Ops::reserve_workspace() {
  const size_t attention = attention_workspace_needed_;
  workspace_ = std::make_unique<Arena>("kernel workspace",
                                       Arena::padded(workspace_needed_) + Arena::padded(squares_needed_) + attention,
                                       device_.memory());
  if (workspace_needed_ > 0) executor_.workspace = workspace_->take(workspace_needed_);
  if (squares_needed_ > 0) squares_ = reinterpret_cast<float*>(workspace_->take(squares_needed_));
  if (attention > 0) attention_executor_.workspace = workspace_->take(attention);
  if (!device_.is_host()) device_.clear(attention_executor_.workspace, attention);
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

AttentionProblem Ops::problem_of(const AttentionArgs& a) const {
  AttentionProblem problem{a.kv.dtype,
                           options_.precision,
                           a.heads,
                           a.kv.kv_heads,
                           a.kv.head_dim,
                           a.kv.block_size,
                           a.window,
                           a.softcap != 0,
                           static_cast<int64_t>(a.sequences.size()),
                           0,
                           0,
                           options_.batch_invariant,
                           a.phi != nullptr};
  for (const auto& s : a.sequences) {
    problem.rows += s.rows;
    problem.context = std::max<int64_t>(problem.context, s.past + s.rows);
  }
  return problem;
}

// On a GPU decodes and prompts are different problems with different kernels; batches bring the decodes first.
void Ops::attention(const AttentionArgs& args) {
  const auto is_prompt = [](const SequenceSlice& slice) { return slice.rows > 1; };
  const auto first_prompt = std::find_if(args.sequences.begin(), args.sequences.end(), is_prompt);
  const auto decodes = static_cast<size_t>(first_prompt - args.sequences.begin());
  if (device_.is_host() || decodes == 0 || decodes == args.sequences.size()) return attend(args);
  AttentionArgs part = args;
  part.sequences = args.sequences.first(decodes);
  part.tables.longest_slice = 1;
  attend(part);
  part.sequences = args.sequences.subspan(decodes);
  part.tables.longest_slice = args.tables.longest_slice;
  part.tables.slices += decodes;
  part.tables.pages += static_cast<int64_t>(decodes) * args.tables.page_stride;
  attend(part);
}

void Ops::attention(const RopeWriteOp::Args& rope, const AttentionArgs& args) {
  const AttentionProblem problem = problem_of(args);
  const bool turns_all = rope.angles.cols == 0 || rope.angles.cols == args.kv.head_dim;
  const bool decodes = problem.rows == problem.sequences;  // one row each
  // A prompt's rows are turned by a kernel of their own, with another rounding.
  const bool apart = device_.is_host() || options_.batch_invariant || !decodes || !turns_all;
  if (apart || !planned(problem)->takes_along(problem, hardware_)) {
    rope_write(rope);
    return attention(args);
  }
  AttentionArgs all = args;
  all.fresh = {rope.k, rope.v, rope.angles, rope.style};
  attend(all);
}

const AttentionKernel* Ops::planned(const AttentionProblem& problem) {
  const AttentionKernel* kernel = attention_.choose(pinned(problem));
  MR_ASSERT(kernel != nullptr);
  return kernel;
}

void Ops::attend(const AttentionArgs& args) {
  const AttentionProblem problem = problem_of(args);
  AttentionArgs invariant = args;
  invariant.invariant = options_.batch_invariant;
  const AttentionKernel* kernel = planned(problem);
  if (times_ == nullptr) return kernel->run(invariant, attention_executor_);
  run_watched(attention_, *kernel, problem, invariant, attention_executor_);
}

void Ops::rope_write(const RopeWriteOp::Args& a) {
  const auto rotary = static_cast<int>(a.angles.cols);
  const int64_t rows = bucket(a.k.rows);
  if (!kernels_.rope_write.empty() && !is_forced(RopeOp::kName) && !is_forced(KvWriteOp::kName)) {
    const RopeWriteOp::Problem problem{a.kv.dtype, a.style, rows, a.heads, a.kv.kv_heads, a.kv.head_dim, rotary};
    return dispatch(rope_write_, problem, a);
  }
  if (rotary > 0) {
    rope({a.style, a.q, a.angles, a.heads, a.kv.head_dim, rotary});
    rope({a.style, a.k, a.angles, a.kv.kv_heads, a.kv.head_dim, rotary});
  }
  dispatch(kv_write_, {a.kv.dtype, a.kv.kv_heads, a.kv.head_dim, rows}, {a.k, a.v, a.kv, a.sequences, a.tables});
}

void Ops::embed(const EmbeddingOp::Args& a) {
  dispatch(embedding_, {a.table.dtype, bucket(a.out.rows), a.table.cols}, a);
}

void Ops::norm(const NormOp::Args& a) {
  if (a.x.rows == 0) return;
  dispatch(norm_, {a.kind, bucket(a.x.rows), a.x.cols, a.groups}, a);
}

void Ops::rope_angles(const RopeAnglesOp::Args& a) {
  dispatch(rope_angles_, {bucket(a.angles.rows), static_cast<int>(a.angles.cols)}, a);
}

void Ops::rope(const RopeOp::Args& a) {
  dispatch(rope_, {a.style, bucket(a.x.rows), a.heads, a.head_dim, a.rotary_dim}, a);
}

void Ops::activate(Activation kind, Matrix x, const Matrix* gate_with, Matrix out) {
  if (x.rows == 0) return;
  dispatch(activation_, {kind, gate_with != nullptr, bucket(x.rows), x.cols}, {kind, x, gate_with, out});
}

void Ops::elementwise(const ElementwiseOp::Args& a) {
  if (a.out.rows == 0) return;
  dispatch(elementwise_, {a.kind, bucket(a.out.rows), a.out.cols}, a);
}

void Ops::add(Matrix a, Matrix b, Matrix out) { elementwise({Elementwise::Add, a, b, out}); }

void Ops::scale(Matrix x, float factor) { elementwise({Elementwise::Scale, x, {}, x, factor}); }

void Ops::softcap(Matrix x, float cap) { elementwise({Elementwise::Softcap, x, {}, x, cap}); }

void Ops::copy(Matrix x, Matrix out) { elementwise({Elementwise::Scale, x, {}, out, 1}); }

void Ops::gather(Matrix x, std::span<const int32_t> rows, Matrix out) {
  elementwise({Elementwise::Gather, x, {}, out, 1, rows});
}

void Ops::argmax(const ArgmaxOp::Args& a) { dispatch(argmax_, {bucket(a.logits.rows), a.logits.cols}, a); }

void Ops::sample(const SampleOp::Args& a) { dispatch(sample_, {bucket(a.logits.rows), a.logits.cols}, a); }

void Ops::score_range(const ScoreRangeOp::Args& args) {
  if (watch_ != Watch::Measure && times_ != nullptr) return;
  dispatch(score_range_, problem_of(args.attention).bucketed(), args);
}

}  // namespace millrace
