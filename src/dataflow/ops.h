// The operations of one device as a model sees them. Each call states its problem, takes the kernel that the dataflow
// chose for it, and runs it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/op_times.h"
#include "dataflow/planner.h"
#include "hardware/device.h"
#include "tensor/arena.h"

namespace millrace {

// A linear layer: one or more weight matrices side by side in the output (q, k, v that differ in format stay apart).
struct Linear {
  struct Part {
    LinearWeights weights;
    // Kernel per bucket of rows, decided before the first step.
    std::vector<std::pair<int64_t, const LinearKernel*>> plan;
    int64_t least_rows = 1;  // fewer rows are computed as that many: the buffers have room for them
    int64_t tile_rows = 0;   // > 0: rows are computed so many at a time, always all of them
  };
  int64_t n = 0, k = 0;
  bool gated = false;  // gate and up in one part: it gives silu(gate) * up, half as wide
  std::vector<Part> parts;
  const float* bias = nullptr;  // [n] or null
};

struct OpsOptions {
  Precision precision = Precision::Fast;
  std::map<std::string, std::string> forced;  // op -> kernel, from --kernel OP=NAME
  DType working = DType::F32;                 // of the activations that linear layers take
  // One kernel for every number of rows, and no sum whose order depends on them: a row's results are the same whatever
  // else is in the batch. Kernels of a GPU cut their sums by the number of rows, so they always get the same one.
  bool batch_invariant = false;
};

class Ops {
 public:
  Ops(const KernelSet& kernels, Device& device, ThreadPool& pool, const PlanCache* plans, OpsOptions options);

  // Before the first step: decides the kernels for up to `rows` rows, and notes the workspace they need.
  void plan(Linear& linear, int64_t rows);
  void plan(const AttentionProblem& largest);
  void reserve_workspace();                 // after the last plan()
  int64_t padded_rows(int64_t rows) const;  // that buffers must have for a batch of so many
  size_t workspace_bytes() const { return workspace_needed_ + attention_workspace_needed_ + squares_needed_; }

  void embed(const EmbeddingOp::Args& args);
  void linear(Matrix x, const Linear& weights, Matrix y, bool accumulate = false);
  // Adds to y, whose norm `next` is taken by a linear layer right after this one: two kernels may share it.
  struct NextNorm {
    NormOp::Args norm;
    const Linear* linear = nullptr;
  };
  void add_linear(Matrix x, const Linear& weights, Matrix y, const NextNorm& next);
  // The linear layer of a norm, which is written to norm.out unless the kernel computes it for itself.
  void linear(const NormOp::Args& norm, const Linear& weights, Matrix y);
  void attention(const AttentionArgs& args);
  // Turns q and k, stores k and v, then attends; the kernel may do all of it at once.
  void attention(const RopeWriteOp::Args& rope, const AttentionArgs& args);
  void rope_write(const RopeWriteOp::Args& args);
  void norm(const NormOp::Args& args);
  void rope_angles(const RopeAnglesOp::Args& args);
  void activate(Activation kind, Matrix x, const Matrix* gate_with, Matrix out);
  void add(Matrix a, Matrix b, Matrix out);
  void scale(Matrix x, float factor);
  void softcap(Matrix x, float cap);
  void copy(Matrix x, Matrix out);  // their types may differ
  void gather(Matrix x, std::span<const int32_t> rows, Matrix out);
  void argmax(const ArgmaxOp::Args& args);
  void sample(const SampleOp::Args& args);
  void score_range(const ScoreRangeOp::Args& args);

  // Until it is called with null, every op adds what it took to `times`; with Watch::Expect it does not run, and adds
  // what its plan promises, with Watch::Roof the least that the machine allows. For benchmarks: it allocates.
  enum class Watch { Measure, Expect, Roof };
  void watch(OpTimes* times, Watch how) { times_ = times, watch_ = how; }
  bool watched() const { return times_ != nullptr; }

  bool is_forced(std::string_view op) const { return options_.forced.contains(std::string(op)); }
  const Hardware& hardware() const { return hardware_; }
  Device& device() const { return device_; }
  Precision precision() const { return options_.precision; }
  DType working() const { return options_.working; }
  ThreadPool& pool() const { return *executor_.pool; }
  const KernelSet& kernels() const { return kernels_; }
  Planner<LinearOp>& linear_planner() { return linear_; }
  Planner<AttentionOp>& attention_planner() { return attention_; }
  LinearProblem problem_of(const LinearWeights& weights, int64_t rows, bool gated) const;  // of the working type
  AttentionProblem problem_of(const AttentionArgs& args) const;

 private:
  const LinearKernel* planned(const Linear::Part& part, int64_t rows) const;
  bool is_plain_norm(const NormOp::Args& norm) const;
  template <class Takes>
  bool all_parts(const Linear& linear, int64_t rows, Takes takes) const;
  bool takes_norm_along(const NormOp::Args& norm, const Linear& linear) const;
  bool shares_norm(const Linear& linear, int64_t rows) const;
  template <class Fill>
  void run_parts(const Linear& linear, Matrix x, Matrix y, Fill fill);
  void run_part(const Linear::Part& part, LinearArgs args);
  const AttentionKernel* planned(const AttentionProblem& problem);
  void attend(const AttentionArgs& args);
  void elementwise(const ElementwiseOp::Args& args);
  void rope(const RopeOp::Args& args);
  void plan_invariant(Linear::Part& part, int64_t rows, bool gated);
  void plan_tiles(Linear::Part& part, bool gated);
  void take(Linear::Part& part, const LinearProblem& problem, const LinearKernel* kernel);  // into the plan
  AttentionProblem pinned(AttentionProblem problem) const;
  int64_t bucket(int64_t rows) const;
  template <class Op>
  void dispatch(Planner<Op>& planner, const typename Op::Problem& problem, const typename Op::Args& args);
  template <class Op>
  void run_watched(const Planner<Op>& planner, const Kernel<Op>& kernel, const typename Op::Problem& problem,
                   const typename Op::Args& args, const Executor& executor);

  const KernelSet& kernels_;
  Device& device_;
  const Hardware& hardware_;
  OpsOptions options_;
  // Attention has a workspace of its own: kernels of a GPU keep counters there that each launch leaves at zero.
  Executor executor_, attention_executor_;
  OpTimes* times_ = nullptr;
  Watch watch_ = Watch::Measure;
  std::unique_ptr<Arena> workspace_;
  size_t workspace_needed_ = 0, attention_workspace_needed_ = 0, squares_needed_ = 0;
  float* squares_ = nullptr;  // of a norm that two linear layers share
  NextNorm shared_;           // what the last linear layer did half of
  Planner<LinearOp> linear_;
  Planner<AttentionOp> attention_;
  Planner<NormOp> norm_;
  Planner<RopeAnglesOp> rope_angles_;
  Planner<RopeOp> rope_;
  Planner<ActivationOp> activation_;
  Planner<EmbeddingOp> embedding_;
  Planner<ElementwiseOp> elementwise_;
  Planner<KvWriteOp> kv_write_;
  Planner<RopeWriteOp> rope_write_;
  Planner<ArgmaxOp> argmax_;
  Planner<SampleOp> sample_;
  Planner<ScoreRangeOp> score_range_;
};

}  // namespace millrace
