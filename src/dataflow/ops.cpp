#include "dataflow/ops.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "dataflow/buckets.h"

namespace millrace {
namespace {

std::string forced_kernel(const OpsOptions& options, std::string_view op) {
  const auto found = options.forced.find(std::string(op));
  return found == options.forced.end() ? "" : found->second;
}

void check_forced_ops(const OpsOptions& options) {
  static const std::set<std::string_view> known{LinearOp::kName,    AttentionOp::kName,   NormOp::kName,
                                                RopeOp::kName,      RopeAnglesOp::kName,  ActivationOp::kName,
                                                EmbeddingOp::kName, ElementwiseOp::kName, KvWriteOp::kName};
  for (const auto& [op, kernel] : options.forced) {
    if (!known.contains(op)) fail(ErrorKind::Usage, "--kernel {}={}: no such op", op, kernel);
  }
}

}  // namespace

Ops::Ops(const KernelSet& kernels, const Hardware& hardware, ThreadPool& pool, const PlanCache* plans,
         OpsOptions options)
    : kernels_(kernels),
      hardware_(hardware),
      options_(std::move(options)),
      executor_{&pool, nullptr},
      linear_(kernels.linear, hardware_, plans, forced_kernel(options_, LinearOp::kName)),
      attention_(kernels.attention, hardware_, plans, forced_kernel(options_, AttentionOp::kName)),
      norm_(kernels.norm, hardware_, plans, forced_kernel(options_, NormOp::kName)),
      rope_angles_(kernels.rope_angles, hardware_, plans, forced_kernel(options_, RopeAnglesOp::kName)),
      rope_(kernels.rope, hardware_, plans, forced_kernel(options_, RopeOp::kName)),
      activation_(kernels.activation, hardware_, plans, forced_kernel(options_, ActivationOp::kName)),
      embedding_(kernels.embedding, hardware_, plans, forced_kernel(options_, EmbeddingOp::kName)),
      elementwise_(kernels.elementwise, hardware_, plans, forced_kernel(options_, ElementwiseOp::kName)),
      kv_write_(kernels.kv_write, hardware_, plans, forced_kernel(options_, KvWriteOp::kName)) {
  check_forced_ops(options_);
}

template <class Op>
void Ops::dispatch(Planner<Op>& planner, const typename Op::Problem& problem, const typename Op::Args& args) {
  const Kernel<Op>* kernel = planner.choose(problem);
  MR_ASSERT(kernel != nullptr);  // every op has a reference that runs everything the models ask for
  if (times_ != nullptr) return run_watched(planner, *kernel, problem, args);
  kernel->run(args, executor_);
}

template <class Op>
void Ops::run_watched(const Planner<Op>& planner, const Kernel<Op>& kernel, const typename Op::Problem& problem,
                      const typename Op::Args& args) {
  if (watch_ == Watch::Expect) return times_->add(Op::kName, planner.expected_us(kernel, problem));
  const auto start = std::chrono::steady_clock::now();
  kernel.run(args, executor_);
  times_->add(Op::kName, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
}

void Ops::plan(Linear& linear, int64_t rows) {
  for (auto& part : linear.parts) {
    if (options_.batch_invariant) {
      plan_invariant(part, rows);
      continue;
    }
    const auto& w = part.weights;
    for (const int64_t m : row_buckets(rows)) {
      const LinearProblem problem{w.format, w.layout->name(), options_.precision, false, w.n, w.k, m};
      const auto* kernel = linear_.choose(problem);
      MR_ASSERT(kernel != nullptr);
      part.plan.emplace_back(m, kernel);
      workspace_needed_ = std::max(workspace_needed_, kernel->workspace_bytes(problem, hardware_));
    }
  }
}

// The kernel that is fastest over a mix of decodes and prompts, among those that run every number of rows from two on.
void Ops::plan_invariant(Linear::Part& part, int64_t rows) {
  const auto& w = part.weights;
  const auto buckets = row_buckets(std::max(rows, kLeastInvariantRows));
  const auto problem_for = [&](int64_t m) {
    return LinearProblem{w.format, w.layout->name(), options_.precision, false, w.n, w.k, m};
  };
  const LinearKernel* best = nullptr;
  double least_us = 0;
  for (const auto* kernel : kernels_.linear) {
    const auto runs = [&](int64_t m) { return m < kLeastInvariantRows || kernel->can_run(problem_for(m), hardware_); };
    if (!std::all_of(buckets.begin(), buckets.end(), runs)) continue;
    double us = 0;
    for (const int64_t m : buckets) {
      if (m >= kLeastInvariantRows) us += kernel->estimate_us(problem_for(m), hardware_) / static_cast<double>(m);
    }
    if (best != nullptr && us >= least_us) continue;
    best = kernel;
    least_us = us;
  }
  MR_ASSERT(best != nullptr);  // the reference runs everything
  part.least_rows = kLeastInvariantRows;
  for (const int64_t m : buckets) {
    part.plan.emplace_back(m, best);
    if (m < part.least_rows) continue;
    workspace_needed_ = std::max(workspace_needed_, best->workspace_bytes(problem_for(m), hardware_));
  }
}

// What small ops are planned for.
int64_t Ops::bucket(int64_t rows) const { return options_.batch_invariant ? 1 : bucket_rows(rows); }

void Ops::plan(const AttentionProblem& largest) {
  for (const auto& problem : attention_buckets(largest)) {
    const auto* kernel = attention_.choose(problem);
    if (kernel == nullptr) {
      fail(ErrorKind::Unsupported, "no attention kernel for head size {} with a {} KV cache; try --kv-type f16",
           largest.head_dim, name(largest.kv));
    }
    workspace_needed_ = std::max(workspace_needed_, kernel->workspace_bytes(problem, hardware_));
  }
}

void Ops::reserve_workspace() {
  workspace_ = std::make_unique<Arena>("kernel workspace", workspace_needed_);
  if (workspace_needed_ > 0) executor_.workspace = workspace_->take(workspace_needed_);
}

void Ops::linear(Matrix x, const Linear& linear, Matrix y, bool accumulate) {
  if (x.rows == 0) return;  // a prompt's chunk that wants no logits
  const int64_t bucket = bucket_rows(x.rows);
  int64_t column = 0;
  for (const auto& part : linear.parts) {
    const int64_t rows = std::max(x.rows, part.least_rows);
    const LinearKernel* kernel = nullptr;
    for (const auto& [m, planned] : part.plan) {
      if (m == bucket) kernel = planned;
    }
    MR_ASSERT(kernel != nullptr);
    const float* bias = linear.bias != nullptr ? linear.bias + column : nullptr;
    const auto& w = part.weights;
    const LinearArgs args{x.first_rows(rows), &w, bias, y.first_rows(rows).columns(column, w.n), accumulate};
    if (times_ == nullptr) {
      kernel->run(args, executor_);
    } else {
      run_watched(linear_, *kernel, {w.format, w.layout->name(), options_.precision, false, w.n, w.k, rows}, args);
    }
    column += w.n;
  }
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
                           a.q.rows,
                           0};
  for (const auto& s : a.sequences) problem.context = std::max<int64_t>(problem.context, s.past + s.rows);
  return problem;
}

void Ops::attention(const AttentionArgs& args) {
  const AttentionProblem problem = problem_of(args);
  AttentionProblem pinned = problem;
  if (options_.batch_invariant) pinned.sequences = pinned.rows = pinned.context = 1;
  AttentionArgs invariant = args;
  invariant.invariant = options_.batch_invariant;
  if (times_ == nullptr) return dispatch(attention_, pinned.bucketed(), invariant);
  run_watched(attention_, *attention_.choose(pinned.bucketed()), problem, invariant);
}

void Ops::kv_write(Matrix k, Matrix v, const KvLayer& kv, std::span<const SequenceSlice> sequences) {
  dispatch(kv_write_, {kv.dtype, kv.kv_heads, kv.head_dim, bucket(k.rows)}, {k, v, kv, sequences});
}

void Ops::embed(const WeightView& table, std::span<const int32_t> ids, Matrix out, float scale, bool accumulate) {
  dispatch(embedding_, {table.dtype, bucket(out.rows), table.cols}, {table, ids, scale, accumulate, out});
}

void Ops::norm(const NormOp::Args& a) { dispatch(norm_, {a.kind, bucket(a.x.rows), a.x.cols, a.groups}, a); }

void Ops::rope_angles(std::span<const int32_t> positions, std::span<const float> inverse_frequency, float magnitude,
                      Matrix angles) {
  dispatch(rope_angles_, {bucket(angles.rows), static_cast<int>(angles.cols)},
           {positions, inverse_frequency, magnitude, angles});
}

void Ops::rope(const RopeOp::Args& a) {
  dispatch(rope_, {a.style, bucket(a.x.rows), a.heads, a.head_dim, a.rotary_dim}, a);
}

void Ops::activate(Activation kind, Matrix x, const Matrix* gate_with, Matrix out) {
  dispatch(activation_, {kind, gate_with != nullptr, bucket(x.rows), x.cols}, {kind, x, gate_with, out});
}

void Ops::elementwise(const ElementwiseOp::Args& a) {
  dispatch(elementwise_, {a.kind, bucket(a.out.rows), a.out.cols}, a);
}

void Ops::add(Matrix a, Matrix b, Matrix out) { elementwise({Elementwise::Add, a, b, out}); }

void Ops::scale(Matrix x, float factor) { elementwise({Elementwise::Scale, x, {}, x, factor}); }

void Ops::softcap(Matrix x, float cap) { elementwise({Elementwise::Softcap, x, {}, x, cap}); }

void Ops::gather(Matrix x, std::span<const int32_t> rows, Matrix out) {
  elementwise({Elementwise::Gather, x, {}, out, 1, rows});
}

}  // namespace millrace
