#include "engine/measure/speculation.h"

#include "engine/step_cost.h"

namespace millrace {

double tokens_per_step(int32_t draft, double acceptance, int32_t width, double second) {
  double tokens = 1, wrong = 1;  // the probability that all first tokens so far are wrong
  for (int32_t chain = 0; chain < width; ++chain) {
    const double right = chain == 0 ? acceptance : second;
    double gain = wrong * right;
    for (int32_t i = 0; i < draft; ++i, gain *= acceptance) tokens += gain;
    wrong *= 1 - right;
  }
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
    costs.push_back({batch, 0, without, 0, 0, 0});
    for (const int32_t draft : drafts) {
      const double pass_us = pass.us(batch, batch * context, 0, 0);
      const double us = estimate.verify_us(batch, batch * context, {batch * draft, batch, draft, 0}) + draft * pass_us;
      // The first tokens of drafts and branches come from the same pass.
      const double branched = estimate.verify_us(batch, batch * context, {2 * batch * draft, batch, draft, batch}) +
                              pass_us + (draft - 1) * pass.us(2 * batch, 2 * batch * context, 0, 0);
      const double alone = tokens_per_step(draft, kBranchAcceptance);
      const double most = tokens_per_step(draft, kBranchAcceptance, 2, 1) - alone;
      costs.push_back(
          {batch, draft, us, break_even_acceptance(draft, us / without), branched, alone * (branched / us - 1) / most});
    }
  }
  return costs;
}

}  // namespace millrace
