// Mixtures of shapes that the estimates were not fitted on. Kernels are chosen as for an even routing; the search may
// use a skewed one.
#include "dataflow/layout.h"
#include "regret.h"

namespace millrace {
namespace {

struct Mixture {
  int64_t groups, per_row, hidden, inner;
};

constexpr Mixture kCpuMixtures[] = {{48, 6, 1536, 512}, {24, 3, 1024, 1280}, {80, 10, 1280, 256}};
constexpr int64_t kCpuTokens[] = {1, 2, 3, 4, 8, 16, 32, 64, 128, 256};
constexpr Mixture kGpuMixtures[] = {{72, 5, 2304, 1280}, {56, 3, 3584, 1536}, {192, 9, 1792, 768}, {20, 2, 4608, 5120}};
constexpr int64_t kGpuTokens[] = {1, 2, 3, 4, 8, 12, 16, 32, 64, 128, 256, 512, 1024, 4096};

}  // namespace

Regrets RegretSearch::search_experts(DType format) {
  Regrets regrets;
  const bool host = device_->is_host();
  const Planner<GroupedLinearOp> planner(kernels_.of<GroupedLinearOp>(), hardware(), nullptr, "");
  const DType x = host ? DType::F32 : is_quantized(format) ? DType::BF16 : format;
  for (const Mixture& m : host ? std::span<const Mixture>(kCpuMixtures) : std::span<const Mixture>(kGpuMixtures)) {
    for (const bool gated : {true, false}) {  // gate and up, or down
      GroupedLinearProblem problem{.format = format,
                                   .groups = m.groups,
                                   .n = gated ? 2 * m.inner : m.hidden,
                                   .k = gated ? m.hidden : m.inner,
                                   .per_row = m.per_row,
                                   .x = x,
                                   .gated = gated,
                                   .sum = !gated};
      const LinearLayout* layout = choose_layout(problem, kernels_, planner);
      if (layout == nullptr) continue;
      problem.layout = layout->name();
      ColdExperts experts(problem, *layout, *device_, pool_);
      for (const int64_t rows : host ? std::span<const int64_t>(kCpuTokens) : std::span<const int64_t>(kGpuTokens)) {
        if (rows > options_.most_rows) break;
        problem.rows = rows;
        add_problem<GroupedLinearOp>(
            planner, problem, [&](const auto& some) { return quick_.time(problem, some, experts); },
            [&](const auto& all) { return thorough_.time(problem, all, experts, options_.skew); }, regrets);
      }
    }
  }
  return regrets;
}

}  // namespace millrace
