#include "dataflow/layout.h"

#include <array>
#include <compare>

namespace millrace {
namespace {

// A conversation decodes some hundred tokens for each prompt it reads; a server batches a few streams.
struct Share {
  int64_t m;
  double steps;
};
constexpr std::array<Share, 3> kMix{{{1, 200}, {8, 20}, {512, 1}}};

// Layouts that the forced kernel cannot read come last; then the total time counts.
struct Cost {
  bool misses_forced = true;
  double us = 0;
  friend auto operator<=>(const Cost&, const Cost&) = default;
};

Cost cost_of(LinearProblem problem, const Planner<LinearOp>& planner) {
  Cost cost;
  for (const auto& share : kMix) {
    problem.m = bucket_rows(share.m);
    const auto ranked = planner.rank(problem);
    if (ranked.empty()) return {true, std::numeric_limits<double>::infinity()};
    const auto& best = ranked.front();
    cost.us += share.steps * (best.measured_us > 0 ? best.measured_us : best.estimate_us);
    if (planner.is_forced(*best.kernel)) cost.misses_forced = false;
  }
  return cost;
}

}  // namespace

const LinearLayout& choose_layout(DType format, int64_t n, int64_t k, Precision precision, const KernelSet& kernels,
                                  const Planner<LinearOp>& planner, DType x) {
  const LinearLayout* best = nullptr;
  Cost least{true, std::numeric_limits<double>::infinity()};
  for (const auto* layout : kernels.layouts) {
    if (!layout->accepts(format, n, k, planner.hardware())) continue;
    const Cost cost = cost_of({format, layout->name(), precision, false, n, k, 1, x}, planner);
    if (cost < least) {
      best = layout;
      least = cost;
    }
  }
  MR_ASSERT(best != nullptr);  // the file's own rows are accepted for every format
  return *best;
}

}  // namespace millrace
