#include "dataflow/layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <limits>

namespace millrace {
namespace {

// Weights of batch sizes: a chat decodes some hundred tokens per prompt; a server batches a few streams.
struct Share {
  int64_t m;
  double steps;
};
constexpr std::array<Share, 3> kMix{{{1, 200}, {8, 20}, {512, 1}}};

// Layouts without the forced kernel come last; then the total time decides.
struct Cost {
  bool misses_forced = true;
  double us = 0;
  friend auto operator<=>(const Cost&, const Cost&) = default;
};

struct LayoutCost {
  const LinearLayout* layout;
  Cost estimated, measured;
  bool is_measured = true;
};

int64_t& rows_of(LinearProblem& problem) { return problem.m; }
int64_t& rows_of(GroupedLinearProblem& problem) { return problem.rows; }

template <class Op>
LayoutCost cost_of(const LinearLayout& layout, typename Op::Problem problem, const Planner<Op>& planner) {
  LayoutCost cost{&layout, {}, {}};
  for (const auto& share : kMix) {
    rows_of(problem) = bucket_rows(share.m);
    const auto ranked = planner.rank(problem);
    if (ranked.empty()) return {&layout, {true, std::numeric_limits<double>::infinity()}, {}, false};
    double estimate_us = ranked.front().estimate_us;
    for (const auto& candidate : ranked) {
      if (!planner.is_forced(*ranked.front().kernel)) estimate_us = std::min(estimate_us, candidate.estimate_us);
    }
    cost.estimated.us += share.steps * estimate_us;
    cost.measured.us += share.steps * ranked.front().measured_us;
    cost.is_measured &= ranked.front().measured_us > 0;
    if (planner.is_forced(*ranked.front().kernel)) cost.estimated.misses_forced = cost.measured.misses_forced = false;
  }
  return cost;
}

// Uses measurements only if every layout has them: estimates are optimistic, so a measured layout would lose to an
// estimated one.
const LinearLayout& best_of(const std::vector<LayoutCost>& costs) {
  const bool measured = std::all_of(costs.begin(), costs.end(), [](const auto& cost) { return cost.is_measured; });
  const auto best = std::min_element(costs.begin(), costs.end(), [&](const auto& a, const auto& b) {
    return measured ? a.measured < b.measured : a.estimated < b.estimated;
  });
  return *best->layout;
}

}  // namespace

const LinearLayout& choose_layout(DType format, int64_t n, int64_t k, Precision precision, const KernelSet& kernels,
                                  const Planner<LinearOp>& planner, DType x) {
  std::vector<LayoutCost> costs;
  for (const auto* layout : kernels.layouts) {
    if (!layout->accepts(format, n, k, planner.hardware())) continue;
    costs.push_back(cost_of(*layout, {format, layout->name(), precision, n, k, 1, x}, planner));
  }
  MR_ASSERT(!costs.empty());  // the file's own row layout accepts every format
  return best_of(costs);
}

namespace {

template <class May>
const LinearLayout* choose_among(GroupedLinearProblem problem, const KernelSet& kernels,
                                 const Planner<GroupedLinearOp>& planner, May may) {
  std::vector<LayoutCost> costs;
  for (const auto* layout : kernels.layouts) {
    if (!may(*layout) || !layout->accepts(problem.format, problem.n, problem.k, planner.hardware())) continue;
    problem.layout = layout->name();
    const LayoutCost cost = cost_of(*layout, problem, planner);
    if (std::isfinite(cost.estimated.us)) costs.push_back(cost);
  }
  return costs.empty() ? nullptr : &best_of(costs);
}

}  // namespace

const LinearLayout* choose_layout(GroupedLinearProblem problem, const KernelSet& kernels,
                                  const Planner<GroupedLinearOp>& planner) {
  return choose_among(problem, kernels, planner, [](const LinearLayout&) { return true; });
}

const LinearLayout* choose_layout_in_place(GroupedLinearProblem problem, const KernelSet& kernels,
                                           const Planner<GroupedLinearOp>& planner) {
  const auto in_place = [&](const LinearLayout& layout) {
    return layout.in_place(problem.format, problem.n, problem.k);
  };
  return choose_among(problem, kernels, planner, in_place);
}

}  // namespace millrace
