#include "engine/measure/speculation.h"

#include "engine/step_cost.h"

namespace millrace {

double tokens_per_step(int32_t draft, double acceptance) {
  double tokens = 1, gain = 1;
  for (int32_t i = 0; i < draft; ++i) tokens += gain *= acceptance;
  return tokens;
}

double break_even_acceptance(int32_t draft, double times) {
  constexpr double kMost = 2;  // beyond any probability
  double low = 0, high = kMost;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (tokens_per_step(draft, middle) < times ? low : high) = middle;
  }
  return high;
}

std::vector<SpeculationCost> speculation_costs(Runner& runner, std::span<const int32_t> batches,
                                               std::span<const int32_t> drafts, int64_t context, Runner* passes) {
  const StepEstimate estimate = estimate_steps(runner, /*drafts=*/true);
  const StepEstimate pass = passes == nullptr ? StepEstimate() : estimate_steps(*passes, /*drafts=*/false);
  std::vector<SpeculationCost> costs;
  for (const int64_t batch : batches) {
    const double without = estimate.verify_us(batch, batch * context, {});
    costs.push_back({batch, 0, without, 0});
    for (const int32_t draft : drafts) {
      const double us = estimate.verify_us(batch, batch * context, {batch * draft, batch, draft}) +
                        draft * pass.us(batch, batch * context, 0, 0);
      costs.push_back({batch, draft, us, break_even_acceptance(draft, us / without)});
    }
  }
  return costs;
}

}  // namespace millrace
