#include "engine/measure/inspection.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "engine/measure/benchmark.h"

namespace millrace {
namespace {

void describe_config(const DecoderConfig& c, Inspection& i) {
  const auto add = [&](const char* key, auto value) { i.config.emplace_back(key, fmt::format("{}", value)); };
  add("layers", c.layers);
  add("hidden", c.hidden);
  if (c.feed_forward > 0) add("feed forward", c.feed_forward);
  if (c.heads > 0) add("heads", fmt::format("{} ({} kv) of {}", c.heads, c.kv_heads, c.head_dim));
  add("vocabulary", c.vocab);
  add("context", c.context);
  if (c.window > 0) add("sliding window", c.window);
  if (c.experts > 0)
    add("experts", fmt::format("{} of {} per token, each {} wide", c.experts_per_row, c.experts, c.expert_width));
  if (c.rotary_dim != c.head_dim) add("rotary part", c.rotary_dim);
}

// A model without attention has no state per token, so its memory does not grow with the context.
void describe_state(const Runner& runner, Inspection& i) {
  const StateLayout& layout = runner.rank().layout();
  const auto bytes = [](size_t n) { return human_bytes(static_cast<int64_t>(n)); };
  i.config.emplace_back("state per token", bytes(layout.bytes_per_token(*runner.options().kv_type)));
  if (!layout.slots().empty()) i.config.emplace_back("state per sequence", bytes(layout.bytes_per_slot()));
}

void predict(Runner& runner, Inspection& i) {
  const auto longest = static_cast<int32_t>(std::min<int64_t>(runner.options().context, 1 << 20));
  i.prompt = std::min(i.prompt, longest);
  i.depth = std::min(i.depth, longest - 1);
  using Kind = BenchmarkCase::Kind;
  i.first_token_ms = 1e3 * i.prompt / predict_benchmark(runner, {Kind::Prompt, i.prompt, 1, 0}).median;
  const double step_us = 1e6 / predict_benchmark(runner, {Kind::Generate, 1, 1, i.depth}).median;
  i.tokens_per_second = 1e6 / (step_us + runner.rank().mapped_experts().storage_us());
}

}  // namespace

Inspection inspect(std::shared_ptr<const WeightSource> source, const LoadOptions& options) {
  Inspection i;
  i.origin = source->origin();
  i.architecture = source->config().architecture();
  for (const auto& t : source->tensors()) {
    i.tensors.push_back({t.name, t.dtype_name, t.shape, static_cast<int64_t>(t.bytes)});
    i.parameters += element_count(t.shape).value_or(0);
    i.bytes += i.tensors.back().bytes;
  }
  try {
    Runner planned(source, options);
    describe_config(planned.model().config(), i);
    describe_state(planned, i);
    i.active_parameters = i.parameters;
    double unused = 0;
    std::set<const Grouped*> copies;  // of experts in host memory, for the GPU, and of gated ones, for adapters
    const auto without_unused = [&](const Ops& ops) {
      for (const Grouped* g : ops.groupeds()) copies.insert({g->streamed, g->apart});
      for (const Grouped* g : ops.groupeds()) {
        if (g->of_heads || copies.contains(g)) continue;
        const auto held = static_cast<double>(g->weights.groups * g->weights.n * g->weights.k);
        unused += held * (1 - g->share_of_a_row());
      }
    };
    if (const HostSide* host = planned.ops().host()) without_unused(host->ops());
    without_unused(planned.ops());
    i.active_parameters -= std::llround(unused);
    i.memory = planned.memory();
    i.host = planned.rank().host_share();
    i.mapped = planned.rank().mapped_experts();
    predict(planned, i);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Usage) throw;  // the options are wrong, not the model
    i.problem = e.what();
  }
  return i;
}

}  // namespace millrace
