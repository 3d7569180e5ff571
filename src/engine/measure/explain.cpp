#include "engine/measure/explain.h"

#include <algorithm>

namespace millrace {
namespace {

// Layers repeat, so equal calls of a step are merged into one entry with a count.
void explain_step(std::vector<OpCall>& all, Runner& runner, const StepShape& shape) {
  std::vector<OpCall> calls;
  runner.rank().dry_pass(shape, Ops::Mode::Explain, nullptr, &calls);
  const size_t begin = all.size();
  for (OpCall& call : calls) {
    const auto known = std::find_if(
        all.begin() + static_cast<std::ptrdiff_t>(begin), all.end(),
        [&](const OpCall& other) { return other.problem == call.problem && other.on_host == call.on_host; });
    if (known != all.end()) {
      ++known->calls;
    } else {
      all.push_back(std::move(call));
    }
  }
}

}  // namespace

std::vector<OpCall> explain(Runner& runner, const std::vector<int32_t>& batches, int64_t context) {
  std::vector<OpCall> calls;
  for (const int32_t batch : batches) explain_step(calls, runner, {batch, batch, context, batch});
  const int64_t chunk = std::min(runner.options().rows, context);
  explain_step(calls, runner, {chunk, 1, chunk, 1});
  return calls;
}

std::vector<Crossover> crossovers(Runner& runner) {
  std::vector<Crossover> all;
  for (const Linear* linear : runner.ops().linears()) {
    for (const auto& part : linear->parts) {
      Crossover c{part.weights.n, part.weights.k, std::string(name(part.weights.format))};
      const auto same = [&](const Crossover& o) { return o.n == c.n && o.k == c.k && o.format == c.format; };
      if (std::any_of(all.begin(), all.end(), same)) continue;
      const auto* for_one = part.plan.front().second;
      const auto* for_many = part.plan.back().second;
      for (const auto& [m, kernel] : part.plan) {
        if (c.m1 == 0 && kernel != for_one) c.m1 = m;
        if (c.m2 == 0 && kernel == for_many && for_many != for_one) c.m2 = m;
        if (kernel != for_many) c.m2 = 0;
      }
      all.push_back(c);
    }
  }
  return all;
}

}  // namespace millrace
