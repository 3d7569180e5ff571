#include "server/page/engine_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/measure/explain.h"

namespace millrace {

using Json = nlohmann::ordered_json;

Json engine_view(const EngineStats& stats) {
  Json streams = Json::array();
  for (const StreamStats& stream : stats.streams) {
    streams.push_back({{"id", stream.id},
                       {"choice", stream.choice},
                       {"client", stream.client},
                       {"prompt_tokens", stream.prompt_tokens},
                       {"computed_tokens", stream.computed_tokens},
                       {"generated_tokens", stream.generated_tokens}});
  }
  return {{"running", stats.running},
          {"waiting", stats.waiting},
          {"tokens_per_second", stats.tokens_per_second},
          {"step_ms", stats.step_ms},
          {"step_rows", stats.step_rows},
          {"kv", {{"blocks", stats.kv_blocks}, {"used", stats.kv_blocks_used}, {"cached", stats.kv_blocks_cached}}},
          {"streams", streams},
          {"steps", stats.steps},
          {"requests", stats.requests},
          {"prompt_tokens", stats.prompt_tokens},
          {"cached_tokens", stats.cached_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"preemptions", stats.preemptions}};
}

Json dataflow_view(Runner& runner) {
  const int64_t context = std::min<int64_t>(1024, runner.options().context);
  std::vector<int32_t> batches = {1};
  if (runner.options().rows >= 8) batches.push_back(8);
  const bool roof = runner.hardware().ceilings.measured;  // a percent of a guessed roof says nothing
  Json choices = Json::array();
  for (const OpCall& choice : explain(runner, batches, context)) {
    if (choice.candidates.empty() || !choice.has_roof) continue;
    const OpCall::Candidate& chosen = choice.candidates.front();
    choices.push_back({{"op", choice.op},
                       {"what", choice.problem},
                       {"format", choice.format},
                       {"layout", choice.layout},
                       {"n", choice.n},
                       {"k", choice.k},
                       {"m", choice.m},
                       {"calls", choice.calls},
                       {"kernel", chosen.kernel},
                       {"microseconds", chosen.measured_us > 0 ? chosen.measured_us : chosen.estimate_us},
                       {"measured", chosen.measured_us > 0},
                       {"percent_of_roof", roof ? Json(chosen.percent_of_roof) : Json()}});
  }
  return {{"choices", choices}};
}

}  // namespace millrace
