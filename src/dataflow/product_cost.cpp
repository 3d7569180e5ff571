#include "dataflow/product_cost.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "dataflow/cold_inputs.h"
#include "dataflow/ops.h"
#include "hardware/clock.h"

namespace millrace {
namespace {

bool same_product(const GroupedLinearProblem& a, const GroupedLinearProblem& b) {
  return a.format == b.format && a.layout == b.layout && a.n == b.n && a.k == b.k && a.gated == b.gated &&
         a.sum == b.sum;
}

// Fills the caches with other data, and brings threads that have slept up to their speed.
void evict(std::vector<std::byte>& other, ThreadPool& pool) {
  pool.parallel_for(std::ssize(other), 1 << 20,
                    [&](int64_t begin, int64_t end) { std::memset(other.data() + begin, 1, size_t(end - begin)); });
}

Matrix matrix_of(std::vector<float>& values, int64_t rows) {
  const int64_t cols = std::ssize(values) / rows;
  return {DType::F32, rows, cols, cols, reinterpret_cast<std::byte*>(values.data())};
}

// The weights are not in a cache, as in a step: no more are read than lie in memory. The median, because a prediction
// is about usual steps.
double median_us(const Kernel<GroupedLinearOp>& kernel, const GroupedLinearProblem& p, ColdExperts& experts, Ops& ops) {
  constexpr double kFewest = 6, kMost = 40;
  const double bytes = p.expected_active() * double(p.n) * double(row_bytes(p.format, p.k));
  const auto runs = static_cast<size_t>(std::clamp(double(cold_bytes(ops.hardware())) / bytes, kFewest, kMost));
  RandomRoutings routings(p, ops.device());
  const int64_t x_rows = p.sum ? p.pairs() : p.rows, y_rows = p.sum ? p.rows : p.pairs();
  std::vector<float> x(static_cast<size_t>(x_rows * p.k), 0.5f), y(static_cast<size_t>(y_rows * p.n));
  const size_t needed = Arena::padded(kernel.workspace_bytes(p, ops.hardware()) + 64);
  Arena workspace("kernel workspace", needed);
  const Executor executor{&ops.pool(), workspace.take(needed), nullptr, &ops.hardware()};
  GroupedLinearArgs args{.x = matrix_of(x, x_rows),
                         .gated = p.gated,
                         .sum = p.sum,
                         .y = matrix_of(y, y_rows).columns(0, p.gated ? p.n / 2 : p.n)};
  std::vector<double> times;
  while (times.size() < runs) {
    args.weights = experts.next();
    args.routing = routings.next();
    const auto start = Clock::now();
    kernel.run(args, executor);
    times.push_back(1e6 * seconds_since(start));
  }
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

ProductCost measure(const Grouped& g, Ops& ops, std::vector<std::byte>& other) {
  GroupedLinearProblem one = ops.problem_of(g, 1);
  one.all_groups = 0;
  // Enough experts that they do not stay in a cache.
  const size_t each = static_cast<size_t>(one.n) * row_bytes(one.format, one.k);
  const auto enough = static_cast<int64_t>(cold_bytes(ops.hardware()) / std::max<size_t>(1, each)) + 1;
  one.groups = std::max(one.per_row, std::min(g.all_groups, enough));
  GroupedLinearProblem few = one;
  few.rows = ProductTimes::kFewRows;
  ColdExperts experts(one, *g.weights.layout, ops.device(), ops.pool());
  const auto time = [&](const GroupedLinearProblem& problem, double& estimate_us) {
    auto& planner = ops.planner<GroupedLinearOp>();
    const Kernel<GroupedLinearOp>* kernel = planner.plan(problem);
    MR_ASSERT(kernel != nullptr);  // the same layer was planned
    estimate_us = planner.expected_us(*kernel, problem);
    evict(other, ops.pool());
    return median_us(*kernel, problem, experts, ops);
  };
  ProductTimes estimated, measured;
  measured.one = time(one, estimated.one);
  measured.few = time(few, estimated.few);
  ProductCost cost = fit_product_cost(one, estimated, measured);
  const double us = (estimated.few - estimated.one) * cost.factor;
  if (us > 0) cost.gbs = double(each) * (few.expected_active() - one.expected_active()) / us * 1e-3;
  log().debug("{}: {:.1f} us of one row, {:.1f} of {}; estimated {:.1f} and {:.1f}", to_string(one), measured.one,
              measured.few, few.rows, estimated.one, estimated.few);
  return cost;
}

}  // namespace

ProductCost fit_product_cost(const GroupedLinearProblem& of, const ProductTimes& estimated,
                             const ProductTimes& measured) {
  constexpr double kLeast = 0.2;  // of the estimate
  ProductCost cost{.of = of};
  const double more = estimated.few - estimated.one;
  if (more > 0) cost.factor = std::max(kLeast, (measured.few - measured.one) / more);
  cost.call_us = measured.one - cost.factor * estimated.one;
  if (cost.call_us >= 0) return cost;
  cost.factor = (measured.one + measured.few) / (estimated.one + estimated.few);
  cost.call_us = 0;
  return cost;
}

double corrected_us(std::span<const ProductCost> costs, const GroupedLinearProblem& problem, double estimated_us) {
  if (problem.rows > ProductCost::kMostRows) return estimated_us;
  for (const ProductCost& cost : costs) {
    if (same_product(cost.of, problem)) return cost.call_us + cost.factor * estimated_us;
  }
  return estimated_us;
}

std::vector<ProductCost> measure_products(Ops& ops) {
  std::vector<ProductCost> costs;
  const auto turn = ops.pool().turn();
  std::vector<std::byte> other(ops.groupeds().empty() ? 0 : cold_bytes(ops.hardware()));
  for (const Grouped* g : ops.groupeds()) {
    const auto is_known = [&](const ProductCost& cost) { return same_product(cost.of, ops.problem_of(*g, 1)); };
    if (std::any_of(costs.begin(), costs.end(), is_known)) continue;
    try {
      costs.push_back(measure(*g, ops, other));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::OutOfMemory) throw;
      log().warn("the rate of experts in host memory is a guess: {}", error.what());
    }
  }
  return costs;
}

}  // namespace millrace
