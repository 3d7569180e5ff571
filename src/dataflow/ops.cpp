#include "dataflow/ops.h"

#include <tuple>

#include "base/log.h"
#include "dataflow/buckets.h"

namespace millrace {
namespace {

std::string forced_kernel(const OpsOptions& options, std::string_view op) {
  const auto found = options.forced.find(std::string(op));
  return found == options.forced.end() ? "" : found->second;
}

void check_forced_ops(const OpsOptions& options) {
  for (const auto& [op, kernel] : options.forced) {
    const std::string_view name = op;  // clang 14 captures no structured bindings
    bool known = false;
    AllOps::for_each([&]<class Op>(std::type_identity<Op>) { known |= name == Op::kName; });
    if (!known) fail(ErrorKind::Usage, "--kernel {}={}: no such op", op, kernel);
  }
}

// One planner for each op of the list.
template <class... Op>
std::tuple<Planner<Op>...> make_planners(std::type_identity<std::tuple<Planner<Op>...>>, const KernelSet& kernels,
                                         const Hardware& hardware, const PlanCache* plans, const OpsOptions& options) {
  return {Planner<Op>(kernels.of<Op>(), hardware, plans, forced_kernel(options, Op::kName))...};
}

}  // namespace

Ops::Ops(const KernelSet& kernels, Device& device, ThreadPool& pool, const PlanCache* plans, OpsOptions options)
    : kernels_(kernels),
      device_(device),
      hardware_(device.hardware()),
      options_(std::move(options)),
      executor_{&pool, nullptr, device.queue(), &device.hardware(), starts_early(device.hardware())},
      attention_executor_(executor_),
      planners_(make_planners(std::type_identity<AllOps::Each<Planner>>(), kernels, hardware_, plans, options_)) {
  check_forced_ops(options_);
}

void Ops::observe(Mode mode, OpTimes* times, std::vector<OpCall>* calls) {
  mode_ = mode;
  times_ = times;
  calls_ = calls;
  if (host_ != nullptr) host_->ops().observe(mode, times, calls);
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
  if (host_ == nullptr) return;
  host_->ops().reserve_workspace();
  host_->allocate();
}

void Ops::warn_of_unused_forced_kernels() const {
  AllOps::for_each([&]<class Op>(std::type_identity<Op>) {
    const auto& planner = std::get<Planner<Op>>(planners_);
    if (!planner.misses_forced()) return;
    log().warn("--kernel {}={}: runs nothing of this model here; others are taken", Op::kName, planner.forced());
  });
}

// The number of rows for which small ops are planned. An op whose workspace depends on the rows needs bucket_rows().
int64_t Ops::bucket(int64_t rows) const { return options_.batch_invariant ? 1 : bucket_rows(rows); }

void Ops::rope_write(const RopeWriteOp::Args& a) {
  const auto rotary = static_cast<int>(a.angles.cols);
  const int64_t rows = bucket(a.k.rows);
  if (!kernels_.of<RopeWriteOp>().empty() && !is_forced(RopeOp::kName) && !is_forced(KvWriteOp::kName)) {
    return call<RopeWriteOp>(
        {a.kv.dtype, a.style, rows, a.heads, a.kv.kv_heads, a.kv.key_dim, a.kv.value_dim, rotary, a.kv.latent}, a);
  }
  if (rotary > 0) {
    rope({a.style, a.q, a.angles, a.heads, a.kv.key_dim, rotary});
    rope({a.style, a.k, a.angles, a.kv.kv_heads, a.kv.key_dim, rotary});
  }
  call<KvWriteOp>({a.kv.dtype, a.kv.kv_heads, a.kv.key_dim, a.kv.value_dim, rows, a.kv.latent},
                  {a.k, a.v, a.kv, a.sequences, a.tables});
}

void Ops::embed(const EmbeddingOp::Args& a) { call<EmbeddingOp>({a.table.dtype, bucket(a.out.rows), a.table.cols}, a); }

void Ops::embed_tokens(const EmbeddingOp::Args& a) {
  embed(a);
  if (!adapts(AdapterTable::kEmbeddingSite)) return;
  call<LoraOp>({adapters_->format, bucket_rows(a.out.rows), a.table.cols, a.table.rows, 1, true, false,
                options_.batch_invariant},
               {.format = adapters_->format,
                .ids = a.ids,
                .chosen = a.chosen,
                .scale = a.scale,
                .adapters = row_adapters_.data(),
                .table = adapters_->of_site(AdapterTable::kEmbeddingSite),
                .y = a.out});
}

NormOp::Problem Ops::problem_of(const NormOp::Args& a) const {
  return {a.kind, bucket(a.x.rows), a.x.cols, a.groups, a.accumulate};
}

void Ops::norm(const NormOp::Args& a) {
  if (a.x.rows > 0) call<NormOp>(problem_of(a), a);
}

void Ops::rope_angles(const RopeAnglesOp::Args& a) {
  call<RopeAnglesOp>({bucket(a.angles.rows), static_cast<int>(a.angles.cols)}, a);
}

void Ops::rope(const RopeOp::Args& a) {
  call<RopeOp>({a.style, bucket(a.x.rows), a.heads, a.head_dim, a.rotary_dim}, a);
}

void Ops::delta_rule(const CausalConvOp::Args& conv, const DeltaRuleOp::Args& rule) {
  const DeltaRuleOp::Problem problem{rule.shape, bucket(rule.out.rows), rule.v.dtype, options_.batch_invariant,
                                     static_cast<int64_t>(rule.sequences.size())};
  const Kernel<DeltaRuleOp>* kernel = is_dry() ? nullptr : planner<DeltaRuleOp>().planned(problem);
  DeltaRuleOp::Args args = rule;
  if (kernel != nullptr && kernel->takes_along(problem, hardware_) && !is_forced(CausalConvOp::kName)) {
    args.conv = &conv;
  } else {
    call<CausalConvOp>({bucket(conv.x.rows), conv.x.cols, conv.taps}, conv);
  }
  call<DeltaRuleOp>(problem, args);
}

void Ops::activate(Activation kind, Matrix x, const Matrix* gate_with, Matrix out, SwigluClamp clamp) {
  if (x.rows == 0) return;
  call<ActivationOp>({kind, gate_with != nullptr, bucket(x.rows), x.cols}, {kind, x, gate_with, out, clamp});
}

// GPU layouts alternate groups of gate and up. Each group then counts as a row of its own.
void Ops::activate_gated(const Linear& linear, Matrix gate_up, Matrix out) {
  if (gate_up.rows == 0) return;
  const bool here = !device_.is_host() && !linear.on_host;
  const int64_t width = out.cols, group = here ? linear.parts[0].weights.layout->gate_group() : width;
  if (here) {
    MR_ASSERT(gate_up.stride == 2 * width && out.stride == width);
    gate_up = {gate_up.dtype, gate_up.rows * (width / group), 2 * group, 2 * group, gate_up.data};
    out = {out.dtype, gate_up.rows, group, group, out.data};
  }
  const Matrix up = gate_up.columns(group, group);
  call<ActivationOp>({Activation::Silu, true, bucket(out.rows * group / width), width},
                     {Activation::Silu, gate_up.columns(0, group), &up, out});
}

void Ops::elementwise(const ElementwiseOp::Args& a) {
  if (a.out.rows == 0) return;
  call<ElementwiseOp>({a.kind, bucket(a.out.rows), a.out.cols}, a);
}

void Ops::add(Matrix a, Matrix b, Matrix out) { elementwise({Elementwise::Add, a, b, out}); }

void Ops::multiply(Matrix a, Matrix b, Matrix out) { elementwise({Elementwise::Multiply, a, b, out}); }

void Ops::scale(Matrix x, float factor) { elementwise({Elementwise::Scale, x, {}, x, factor}); }

void Ops::scale_by_position(Matrix x, float beta, int32_t period, std::span<const int32_t> positions) {
  elementwise({Elementwise::ScaleByPosition, x, {}, x, beta, positions, period});
}

void Ops::softcap(Matrix x, float cap) { elementwise({Elementwise::Softcap, x, {}, x, cap}); }

void Ops::clamp(Matrix x, float limit) { elementwise({Elementwise::Clamp, x, {}, x, limit}); }

void Ops::scale_by_sigmoid(Matrix x, Matrix by) { elementwise({Elementwise::ScaleBySigmoid, x, by, x}); }
void Ops::scale_rows_by_sigmoid(Matrix x, Matrix by) { elementwise({Elementwise::ScaleRowsBySigmoid, x, by, x}); }

void Ops::copy(Matrix x, Matrix out) { elementwise({Elementwise::Scale, x, {}, out, 1}); }

void Ops::gather(Matrix x, std::span<const int32_t> rows, Matrix out) {
  elementwise({Elementwise::Gather, x, {}, out, 1, rows});
}

void Ops::argmax(const ArgmaxOp::Args& a) {
  if (a.logits.rows > 0) call<ArgmaxOp>({bucket(a.logits.rows), a.logits.cols}, a);
}

void Ops::sample(const SampleOp::Args& a) { call<SampleOp>({bucket(a.logits.rows), a.logits.cols}, a); }

// Only calibration calls it, never a serving step, so it is planned at its first call.
void Ops::score_range(const ScoreRangeOp::Args& args) {
  launch_pending();
  if (is_dry()) return;
  const AttentionProblem problem = problem_of(args.attention).bucketed();
  const Kernel<ScoreRangeOp>* kernel = planner<ScoreRangeOp>().plan(problem);
  MR_ASSERT(kernel != nullptr);
  run<ScoreRangeOp>(*kernel, problem, args, executor_);
}

}  // namespace millrace
