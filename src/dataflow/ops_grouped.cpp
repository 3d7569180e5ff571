// Grouped linear layers, the experts of mixtures. A dry pass plans a kernel for each bucket of rows.
#include "dataflow/buckets.h"
#include "dataflow/ops.h"
#include "hardware/ceilings.h"

namespace millrace {

GroupedLinearProblem Ops::problem_of(const Grouped& g, int64_t rows) const {
  const GroupedWeights& w = g.weights;
  return {.format = w.format,
          .layout = w.layout->name(),
          .precision = options_.precision,
          .groups = w.groups,
          .n = w.n,
          .k = w.k,
          .rows = rows,
          .per_row = g.per_row,
          .x = options_.working,
          .gated = g.gated,
          .sum = g.sum,
          .invariant = options_.batch_invariant,
          .all_groups = g.all_groups > w.groups ? g.all_groups : 0,
          .by_head = g.of_heads};
}

// Dry passes plan the buckets of the batch's rows. A layer with several rows for each of them (one for each head) may
// meet a bucket in between, for which the next larger plan serves.
const Kernel<GroupedLinearOp>* Ops::planned(const Grouped& g, int64_t rows) const {
  for (const auto& [bucket_of_plan, kernel] : g.plan) {
    if (bucket_of_plan >= rows) return kernel;
  }
  return nullptr;
}

// A batch-invariant plan has one kernel for every number of rows, and on a CPU for every number of threads. Dry passes
// begin with the largest step.
void Ops::plan(const Grouped& g, int64_t rows) {
  if (std::find(groupeds_.begin(), groupeds_.end(), &g) == groupeds_.end()) groupeds_.push_back(&g);
  const auto is_planned = [&](const auto& plan) { return plan.first == bucket_rows(rows); };
  if (std::any_of(g.plan.begin(), g.plan.end(), is_planned)) return;
  std::vector<std::pair<GroupedLinearProblem, double>> problems;
  const GroupedLinearProblem wanted = problem_of(g, bucket_rows(rows));
  if (options_.batch_invariant) {
    for (const int64_t m : row_buckets(rows)) problems.emplace_back(problem_of(g, m), 1 / static_cast<double>(m));
  } else {
    problems.emplace_back(wanted, 1);
  }
  const Hardware& planned_for = device_.is_host() ? one_thread_of(hardware_) : hardware_;
  const Kernel<GroupedLinearOp>* kernel = options_.batch_invariant
                                              ? fastest_for_all(kernels_.of<GroupedLinearOp>(), planned_for, problems)
                                              : planner<GroupedLinearOp>().plan(wanted);
  if (kernel == nullptr) fail(ErrorKind::Unsupported, "this device has no kernel for {}", to_string(wanted));
  for (const auto& [problem, weight] : problems) {
    g.plan.emplace_back(problem.rows, kernel);
    workspace_needed_ = std::max(workspace_needed_, kernel->workspace_bytes(problem, hardware_));
  }
  std::sort(g.plan.begin(), g.plan.end());
}

void Ops::grouped_linear(Matrix x, const Grouped& g, const Routing& routing, Matrix y, Matrix early_x) {
  const bool whole = routing.groups == g.weights.groups;
  run_groups(x, g, g.weights, whole ? routing : routing.part(g.first, g.weights.groups), y, early_x);
}

// `weights`: those of g, or a slice of them. `routing`: of the same groups.
void Ops::run_groups(Matrix x, const Grouped& g, const GroupedWeights& weights, const Routing& routing, Matrix y,
                     Matrix early_x) {
  launch_pending();
  if (routing.rows == 0) return;
  if (shows_inputs()) inputs_->see(g, x, routing);
  if (is_dry()) plan(g, routing.rows);
  const Kernel<GroupedLinearOp>* kernel = planned(g, routing.rows);
  MR_ASSERT(kernel != nullptr && x.dtype == options_.working);  // as planned
  run<GroupedLinearOp>(*kernel, problem_of(g, routing.rows),
                       {.x = x,
                        .weights = &weights,
                        .bias = g.bias != nullptr ? g.bias->data + routing.first * weights.n : nullptr,
                        .routing = routing,
                        .gated = g.gated,
                        .activation = g.activation,
                        .clamp = g.clamp,
                        .sum = g.sum,
                        .invariant = options_.batch_invariant,
                        .y = y,
                        .early_x = early_x},
                       executor_);
}

}  // namespace millrace
