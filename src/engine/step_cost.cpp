#include "engine/step_cost.h"

#include "dataflow/roofline.h"

namespace millrace {
namespace {

double chosen_us(const auto& ranked) {
  const auto& best = ranked.front();
  return best.measured_us > 0 ? best.measured_us : best.estimate_us;
}

}  // namespace

StepCost step_cost(Runner& runner, int64_t rows, int64_t sequences, int64_t context, int64_t logit_rows) {
  StepCost cost;
  const Hardware& hardware = runner.hardware();
  const auto& linears = runner.weights().linears();
  for (const auto& linear : linears) {
    const bool is_head = &linear == &linears.back();  // architectures declare the output matrix last
    for (const auto& part : linear.parts) {
      const auto& w = part.weights;
      LinearProblem problem{w.format, w.layout->name(),           runner.ops().precision(), false, w.n,
                            w.k,      is_head ? logit_rows : rows, runner.ops().working()};
      cost.roof_us += roof_us(problem, hardware);
      cost.estimate_us += chosen_us(runner.ops().linear_planner().rank(problem.bucketed()));
    }
  }
  for (AttentionProblem problem : runner.model().attention_problems()) {
    problem.kv = *runner.options().kv_type;
    problem.precision = runner.ops().precision();
    problem.block_size = runner.options().block_size;
    problem.sequences = sequences;
    problem.rows = rows;
    problem.context = context;
    cost.roof_us += roof_us(problem, hardware);
    cost.estimate_us += chosen_us(runner.ops().attention_planner().rank(problem.bucketed()));
  }
  return cost;
}

}  // namespace millrace
