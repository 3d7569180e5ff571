#include "dataflow/ops.h"

#include <set>

#include "dataflow/buckets.h"
#include "dataflow/ops_watch.h"

namespace millrace {
namespace {

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
      executor_{&pool, nullptr, device.queue(), &device.hardware(), starts_early(device.hardware())},
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

template <class Op>
void Ops::dispatch(Planner<Op>& planner, const typename Op::Problem& problem, const typename Op::Args& args) {
  const Kernel<Op>* kernel = planner.choose(problem);
  MR_ASSERT(kernel != nullptr);  // every op has a reference that runs everything the models ask for
  if (times_ != nullptr) return run_watched(planner, *kernel, problem, args, executor_);
  kernel->run(args, executor_);
}

// What small ops are planned for.
int64_t Ops::bucket(int64_t rows) const { return options_.batch_invariant ? 1 : bucket_rows(rows); }

void Ops::rope_write(const RopeWriteOp::Args& a) {
  const auto rotary = static_cast<int>(a.angles.cols);
  const int64_t rows = bucket(a.k.rows);
  if (!kernels_.rope_write.empty() && !is_forced(RopeOp::kName) && !is_forced(KvWriteOp::kName)) {
    const RopeWriteOp::Problem problem{a.kv.dtype,   a.style,        rows,   a.heads,    a.kv.kv_heads,
                                       a.kv.key_dim, a.kv.value_dim, rotary, a.kv.latent};
    return dispatch(rope_write_, problem, a);
  }
  if (rotary > 0) {
    rope({a.style, a.q, a.angles, a.heads, a.kv.key_dim, rotary});
    rope({a.style, a.k, a.angles, a.kv.kv_heads, a.kv.key_dim, rotary});
  }
  dispatch(kv_write_, {a.kv.dtype, a.kv.kv_heads, a.kv.key_dim, a.kv.value_dim, rows, a.kv.latent},
           {a.k, a.v, a.kv, a.sequences, a.tables});
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
