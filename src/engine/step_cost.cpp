#include "engine/step_cost.h"

#include "dataflow/roofline.h"

namespace millrace {
namespace {

double roof_of_step(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows) {
  double us = 0;
  const Hardware& hardware = runner.hardware();
  const auto& linears = runner.weights().linears();
  for (const auto& linear : linears) {
    const bool is_head = &linear == &linears.back();  // architectures declare the output matrix last
    for (const auto& part : linear.parts) {
      const auto& w = part.weights;
      us += roof_us(LinearProblem{w.format, w.layout->name(), runner.ops().precision(), false, w.n, w.k,
                                  is_head ? logit_rows : rows, runner.ops().working()},
                    hardware);
    }
  }
  for (AttentionProblem problem : runner.attention_problems()) {
    problem.sequences = sequences;
    problem.rows = rows;
    problem.context = context;
    us += roof_us(problem, hardware);
  }
  return us;
}

// The model's own forward pass, with ops that say what they would take instead of running.
OpTimes expected_times(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows) {
  const Model& model = runner.model();
  const int block = runner.options().block_size;
  KvCache kv(model.kv_shapes(), {*runner.options().kv_type, block, block});
  Activations buffers({model.widths(), rows, std::max<int64_t>(1, logit_rows), {runner.ops().working()}},
                      host_memory());
  const std::vector<int32_t> tokens(static_cast<size_t>(rows)), wanted(static_cast<size_t>(logit_rows));
  std::vector<SequenceSlice> slices;
  const auto each = static_cast<int32_t>(rows / sequences), length = static_cast<int32_t>(context);
  for (int32_t i = 0; i < sequences; ++i) slices.push_back({i * each, each, length - each, length, {}});
  const PlacedBatch batch{{tokens, slices, wanted}};
  Pass pass(runner.ops(), buffers, kv, model.config(), batch);
  OpTimes times;
  runner.ops().watch(&times, Ops::Watch::Expect);
  model.forward(pass);
  runner.ops().watch(nullptr, Ops::Watch::Measure);
  return times;
}

}  // namespace

StepCost step_cost(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows) {
  return {expected_times(runner, rows, sequences, context, logit_rows),
          roof_of_step(runner, rows, sequences, context, logit_rows)};
}

}  // namespace millrace
