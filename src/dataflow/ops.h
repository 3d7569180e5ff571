// The operations that a model calls on one device. Each call looks up the kernel planned for its problem and runs it.
// Fusion of adjacent calls into one kernel happens here, not in the models.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "dataflow/adapter_table.h"
#include "dataflow/host_side.h"
#include "dataflow/input_observer.h"
#include "dataflow/linear_layer.h"
#include "dataflow/op_call.h"
#include "dataflow/op_times.h"
#include "dataflow/planner.h"
#include "dataflow/product_cost.h"
#include "dataflow/roofline.h"
#include "hardware/device.h"
#include "tensor/arena.h"

namespace millrace {

struct OpsOptions {
  Precision precision = Precision::Fast;
  std::map<std::string, std::string> forced;  // op -> kernel, from --kernel OP=NAME
  DType working = DType::F32;                 // type of the activations that linear layers take
  // A row's results are the same bit for bit whatever else the batch holds. One kernel serves every number of rows. GPU
  // kernels, whose order of summation depends on the number of rows, run on tiles of a fixed size.
  bool batch_invariant = false;
  bool is_host_side = false;  // these ops compute for a HostSide; `explain` says so
};

struct StepLimits {  // the largest step that plans are made for
  int64_t rows = 1, sequences = 1, context = 1;
};

class Ops {
 public:
  Ops(const KernelSet& kernels, Device& device, ThreadPool& pool, const PlanCache* plans, OpsOptions options);

  // In all modes but Run and Measure a pass is dry: no kernel runs.
  enum class Mode : uint8_t {
    Run,      // kernels run; plans are looked up
    Measure,  // as Run; each op adds its measured time
    Plan,     // plans are decided; the workspace they need is summed up
    Expect,   // each op adds the expected time of its plan
    Roof,     // each op adds its roofline time
    Explain,  // each op records its problem and the kernels that can run it
  };
  // Sets the mode and the targets of recorded times and calls. All modes but Run allocate.
  void observe(Mode mode, OpTimes* times = nullptr, std::vector<OpCall>* calls = nullptr);
  Mode mode() const { return mode_; }
  void observe_inputs(InputObserver* observer) { inputs_ = observer; }  // null: none

  // Limits of the following dry passes in Mode::Plan. Attention is planned for every bucket of batches within them.
  void plan_for(const StepLimits& limits) { limits_ = limits; }
  // `host` computes the linear layers with on_host. Call before the first dry pass.
  // stream_rows: least rows of a step that copies weights in host memory to the device; default: by expected times.
  void use_host(HostSide* host, std::optional<int64_t> stream_rows = std::nullopt) {
    host_ = host;
    forced_stream_rows_ = stream_rows;
    least_op_us_ = host->link().launch_us;
  }
  // Measured costs of products, for the expected times of ops that compute for a HostSide.
  void use_costs(std::span<const ProductCost> costs) { costs_ = costs; }
  // Whether the steps of the following Mode::Expect passes are replayed from a recording. If not, no op takes less time
  // than one launch.
  void expect_recorded(bool recorded) { least_op_us_ = recorded || host_ == nullptr ? 0 : host_->link().launch_us; }
  int64_t stream_rows() const { return stream_rows_; }  // the least that a dry pass found; 0: none
  const HostSide* host() const { return host_; }
  // Layers may have adapters. Call before the first dry pass.
  void use_adapters(const AdapterTable* table) { adapters_ = table; }
  // The adapter of each row of the following linear layers (AdapterTable slots, -1: none), in device memory. Empty: no
  // row has one, and layers run as if there were none.
  void adapt_rows(std::span<const int32_t> adapters) { row_adapters_ = adapters; }
  // Whether rows of the following layers may have adapters for this one. A gated layer then computes gate and up only.
  bool adapts(const Linear& linear) const { return adapts(linear.site); }
  bool adapts(const Grouped& grouped) const { return adapts(grouped.site); }
  void reserve_workspace();                 // call after the last plan
  int64_t padded_rows(int64_t rows) const;  // rows that buffers need for a batch of `rows` rows
  size_t workspace_bytes() const { return workspace_needed_ + attention_workspace_needed_ + squares_needed_; }
  // Results of the dry passes: every linear layer once, every grouped one once, every attention problem once. The batch
  // of the attention problems is left open.
  std::span<const Linear* const> linears() const { return linears_; }
  std::span<const Grouped* const> groupeds() const { return groupeds_; }
  std::span<const AttentionProblem> attentions() const { return attentions_; }
  void warn_of_unused_forced_kernels() const;

  void embed(const EmbeddingOp::Args& args);  // adds no adapter
  void embed_tokens(const EmbeddingOp::Args& args);
  void linear(Matrix x, const Linear& weights, Matrix y);
  // y = linear(norm(x)). Writes the norm to norm.out, unless the linear kernel computes the norm itself.
  void linear(const NormOp::Args& norm, const Linear& weights, Matrix y);
  // The same, and norm.out holds the norm for other ops.
  void norm_and_linear(const NormOp::Args& norm, const Linear& weights, Matrix y);
  // feed = silu(gate) * up of a gated layer whose rows may have adapters (adapts()). y: [rows, n], scratch.
  void gated_linear(Matrix x, const Linear& weights, Matrix y, Matrix feed);
  void gated_linear(const NormOp::Args& norm, const Linear& weights, Matrix y, Matrix feed);
  // y += linear(x). The launch is deferred to the next op: if that is a linear layer of a norm of y, the two kernels
  // may share the norm.
  void add_linear(Matrix x, const Linear& weights, Matrix y);
  // x: [rows, k], or with Grouped::sum [pairs, k]. y: [pairs, n], gated [pairs, n / 2]; with `sum` y [rows, n] is added
  // to. `early_x`: GroupedLinearArgs::early_x.
  void grouped_linear(Matrix x, const Grouped& weights, const Routing& routing, Matrix y, Matrix early_x = {});
  // y += down(gate_up(x)) of each row's experts. `feed`: [pairs, down.k], scratch for the products of gate_up.
  // `ungated`: [pairs, gate_up.n], scratch for those before the gate, if adapters change a gated layer.
  void experts(Matrix x, const Grouped& gate_up, const Grouped& down, const Routing& routing, Activation activation,
               Matrix feed, Matrix ungated, Matrix y);
  void activate_pairs(Activation activation, const Routing& routing, Matrix feed);
  void finish_pass() { launch_pending(); }  // call after each forward pass: launches a deferred op
  void norm(const NormOp::Args& args);
  void attention(const AttentionArgs& args);
  // Applies norms and RoPE to q and k, stores k and v, then attends. A fused kernel may do all of it.
  void attention(const RopeWriteOp::Args& rope, const AttentionArgs& args, const HeadNorms& norms = {});
  void norm_heads(const RopeWriteOp::Args& rope, const HeadNorms& norms);
  // Whether a prompt chunk of latent attention runs in the materialised form, which latent_prompt() computes. Depends
  // on the chunk alone, not on the rest of the batch.
  bool materialises(const LatentPromptOp::Problem& problem);
  void latent_prompt(const LatentPromptOp::Problem& problem, const LatentPromptOp::Args& args);
  void rope_write(const RopeWriteOp::Args& args);
  void rope(const RopeOp::Args& args);  // in place, for models with a norm between RoPE and attention
  // The convolution writes q, k and v of the rule. A fused kernel may do both.
  void delta_rule(const CausalConvOp::Args& conv, const DeltaRuleOp::Args& rule);
  void rope_angles(const RopeAnglesOp::Args& args);
  void activate(Activation kind, Matrix x, const Matrix* gate_with, Matrix out, SwigluClamp clamp = {});
  void add(Matrix a, Matrix b, Matrix out);
  void multiply(Matrix a, Matrix b, Matrix out);  // element by element
  void scale(Matrix x, float factor);
  // Multiplies row i by 1 + beta * ln(1 + floor(positions[i] / period)).
  void scale_by_position(Matrix x, float beta, int32_t period, std::span<const int32_t> positions);
  void softcap(Matrix x, float cap);
  void clamp(Matrix x, float limit);                // to [-limit, limit]
  void scale_rows_by_sigmoid(Matrix x, Matrix by);  // x[i] *= sigmoid(by[i]), by: [rows, 1]
  void scale_by_sigmoid(Matrix x, Matrix by);       // x *= sigmoid(by), element by element
  void copy(Matrix x, Matrix out);                  // converts if the types differ
  void gather(Matrix x, std::span<const int32_t> rows, Matrix out);
  void argmax(const ArgmaxOp::Args& args);
  void sample(const SampleOp::Args& args);
  void score_range(const ScoreRangeOp::Args& args);

  // Runs any op of the list. Row counts in `problem` must come from bucket(), so that the dry passes plan all of them.
  template <class Op>
  void call(const typename Op::Problem& problem, const typename Op::Args& args);
  int64_t bucket(int64_t rows) const;

  bool is_forced(std::string_view op) const { return options_.forced.contains(std::string(op)); }
  const Hardware& hardware() const { return hardware_; }
  Device& device() const { return device_; }
  Precision precision() const { return options_.precision; }
  DType working() const { return options_.working; }
  bool batch_invariant() const { return options_.batch_invariant; }
  ThreadPool& pool() const { return *executor_.pool; }
  const KernelSet& kernels() const { return kernels_; }
  template <class Op>
  Planner<Op>& planner() {
    return std::get<Planner<Op>>(planners_);
  }
  LinearProblem problem_of(const LinearWeights& weights, int64_t rows,
                           bool gated) const;  // with activations of the working type
  GroupedLinearProblem problem_of(const Grouped& weights, int64_t rows) const;
  AttentionProblem problem_of(const AttentionArgs& args) const;

 private:
  struct PendingAdd {  // a deferred add_linear()
    Matrix x, y;
    const Linear* linear = nullptr;
  };

  bool adapts(int site) const {
    if (row_adapters_.empty() || site < 0) return false;
    const auto at = static_cast<size_t>(site);
    return is_dry() ? adapters_->planned[at] != 0 : adapters_->ranks[at] > 0;
  }
  // Input of a layer with adapters. `squares`: of a norm of which x has the first half.
  struct AdaptedInput {
    Matrix x;
    const float* squares = nullptr;
    float epsilon = 0;
  };
  AdaptedInput launch_base(const NormOp::Args& norm, const Linear& linear, Matrix y);
  void launch_base(Matrix x, const Linear& linear, Matrix y);
  LoraOp::Problem adapter_problem(const Linear& linear, int64_t rows) const;
  const Kernel<LoraOp>& adapter_kernel(const LoraOp::Problem& problem);
  void add_adapters(const AdaptedInput& input, const Linear& linear, Matrix y, Matrix feed = {});
  const Linear* adapted_behind(const Linear& linear) const;  // the next layer of a pass with adapters; null: none
  void add_adapters_and_gate(const AdaptedInput& input, const Linear& linear, Matrix y, Matrix feed);
  // out = silu(gate) * up of a gated layer's columns, which lie as its layout stores their rows.
  void activate_gated(const Linear& linear, Matrix gate_up, Matrix out);
  void add_adapters(Matrix x, const Grouped& grouped, const Routing& routing, Matrix y);
  void launch(Matrix x, const Linear& linear, Matrix y);
  // Arguments of experts().
  struct ExpertsCall {
    Matrix x;
    const Grouped &gate_up, &down;
    const Routing& routing;
    Activation activation;
    Matrix feed, ungated, y;
  };

  void linear_on_host(Matrix x, const Linear& linear, Matrix y, bool accumulate);
  void experts_here(const ExpertsCall& call);
  void feed_adapted(const ExpertsCall& call);
  void experts_on_host(const ExpertsCall& call, const FunctionRef<void()>* meanwhile);
  void sum_of_experts(Matrix x, const Grouped& gate_up, const Grouped& down, const Routing& routing,
                      Activation activation, Matrix feed, Matrix out);
  void expect_both(FunctionRef<void()> on_host, const FunctionRef<void()>* beside, Matrix in, Matrix out);
  void stream_experts(const ExpertsCall& call);
  void stream_linear(Matrix x, const Linear& linear, Matrix y, bool accumulate);
  bool streams(const Linear& linear, int64_t rows);
  bool streams(const Grouped& gate_up, const Grouped& down, int64_t rows);
  template <class Layer>
  bool keep_stream(const Layer& layer, int64_t bucket, bool pays);
  double row_over_link_us(int64_t cols) const;
  double stream_us(const Grouped& gate_up, const Grouped& down) const;
  double expected_us(const Linear& linear, int64_t rows);
  double expected_us(const Grouped& grouped, int64_t rows);
  template <class Op>
  double expected_us(const Kernel<Op>& kernel, const typename Op::Problem& problem) {
    const double us = planner<Op>().expected_us(kernel, problem);
    if constexpr (std::is_same_v<Op, GroupedLinearOp>) return corrected_us(costs_, problem, us);
    return us;
  }
  void run_groups(Matrix x, const Grouped& grouped, const GroupedWeights& weights, const Routing& routing, Matrix y,
                  Matrix early_x = {});
  template <class Work>
  void hand_over(const FunctionRef<void()>* meanwhile, const Work& work);
  void note_hand_over(Matrix in, Matrix out);
  bool shows_inputs() const { return inputs_ != nullptr && !is_dry(); }
  bool counts_times() const { return mode_ == Mode::Expect || mode_ == Mode::Roof; }
  bool is_dry() const { return mode_ != Mode::Run && mode_ != Mode::Measure; }
  void launch_pending();
  bool shares_norm_with_pending(const NormOp::Args& norm, const Linear& linear) const;
  void run_sharing_norm(const NormOp::Args& norm, const Linear& linear, Matrix y);
  const LinearKernel* planned(const Linear::Part& part, int64_t rows) const;
  void plan(const Linear& linear, int64_t rows);
  void plan(const Linear::Part& part, int64_t rows, bool gated);
  void plan_invariant(const Linear::Part& part, int64_t rows, bool gated);
  void plan_tiles(const Linear::Part& part, bool gated);
  void keep(const Linear::Part& part, const LinearProblem& problem, const LinearKernel* kernel);
  const Kernel<GroupedLinearOp>* planned(const Grouped& weights, int64_t rows) const;
  void plan(const Grouped& weights, int64_t rows);
  bool is_plain_norm(const NormOp::Args& norm) const;
  template <class Takes>
  bool all_parts(const Linear& linear, int64_t rows, Takes takes) const;
  bool takes_norm_along(const NormOp::Args& norm, const Linear& linear) const;
  bool reads_norm(const Linear& linear) const;
  void norm_then_linear(const NormOp::Args& norm, const Linear& linear, Matrix y);
  void run_with_norm(const NormOp::Args& norm, const Linear& linear, Matrix y);
  bool shares_norm(const Linear& linear, int64_t rows) const;
  void run_parts_from(std::span<std::byte* const> stage, const Linear& linear, Matrix x, Matrix y, bool accumulate);
  template <class Fill>
  void run_parts(const Linear& linear, Matrix x, Matrix y, Fill fill);
  void run_part(const Linear::Part& part, LinearArgs args);
  void plan_attention(const AttentionProblem& problem);
  void plan_latent_prompts(const LatentPromptOp::Problem& problem);
  const AttentionKernel* planned(const AttentionProblem& problem);
  void attend(const AttentionArgs& args);
  void elementwise(const ElementwiseOp::Args& args);
  AttentionProblem pinned(AttentionProblem problem) const;
  NormOp::Problem problem_of(const NormOp::Args& args) const;
  template <class Op>
  void run(const Kernel<Op>& kernel, const typename Op::Problem& problem, const typename Op::Args& args,
           const Executor& executor);

  const KernelSet& kernels_;
  Device& device_;
  const Hardware& hardware_;
  OpsOptions options_;
  // Attention has its own workspace: GPU kernels keep counters in it that must be zero at each launch.
  Executor executor_, attention_executor_;
  Mode mode_ = Mode::Run;
  OpTimes* times_ = nullptr;
  std::vector<OpCall>* calls_ = nullptr;
  StepLimits limits_;
  std::vector<const Linear*> linears_;
  std::vector<const Grouped*> groupeds_;
  std::vector<AttentionProblem> attentions_;
  std::unique_ptr<Arena> workspace_;
  size_t workspace_needed_ = 0, attention_workspace_needed_ = 0, squares_needed_ = 0;
  float* squares_ = nullptr;  // [rows][columns / NormAhead::kPart]: partial sums of squares of a shared norm
  PendingAdd pending_;
  InputObserver* inputs_ = nullptr;
  AllOps::Each<Planner> planners_;
  HostSide* host_ = nullptr;
  const AdapterTable* adapters_ = nullptr;
  std::span<const int32_t> row_adapters_;
  std::vector<const Linear*> adapted_;  // layers that may have adapters, in the order of a pass; filled by dry ones
  std::optional<int64_t> forced_stream_rows_;
  int64_t stream_rows_ = 0;
  double least_op_us_ = 0;  // expected: launching a kernel that is not part of a recorded step
  std::span<const ProductCost> costs_;
};

template <class Op>
void Ops::call(const typename Op::Problem& problem, const typename Op::Args& args) {
  launch_pending();
  const Kernel<Op>* kernel = is_dry() ? planner<Op>().plan(problem) : planner<Op>().planned(problem);
  if (kernel == nullptr && is_dry())
    fail(ErrorKind::Unsupported, "this device has no kernel for {}", to_string(problem));
  MR_ASSERT(kernel != nullptr);  // the dry passes planned every bucket of rows
  if (mode_ == Mode::Plan) workspace_needed_ = std::max(workspace_needed_, kernel->workspace_bytes(problem, hardware_));
  run<Op>(*kernel, problem, args, executor_);
}

// Runs the kernel, or records what the mode asks for.
template <class Op>
void Ops::run(const Kernel<Op>& kernel, const typename Op::Problem& problem, const typename Op::Args& args,
              const Executor& executor) {
  switch (mode_) {
    case Mode::Run:
      return kernel.run(args, executor);
    case Mode::Measure: {
      device_.finish();
      const auto start = std::chrono::steady_clock::now();
      kernel.run(args, executor);
      device_.finish();
      const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
      return times_->add(Op::kName, us.count());
    }
    case Mode::Plan:
      return;
    case Mode::Expect:
      return times_->add(Op::kName, std::max(expected_us<Op>(kernel, problem), least_op_us_));
    case Mode::Roof:
      if (const double us = call_roof_us<Op>(problem, args, hardware_); us > 0) times_->add(Op::kName, us);
      return;
    case Mode::Explain:
      calls_->push_back(explain_call(planner<Op>(), problem, args));
      calls_->back().on_host = options_.is_host_side;
  }
}

}  // namespace millrace
