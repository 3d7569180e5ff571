#include "engine/inspection.h"

#include <fmt/core.h>

#include "base/error.h"

namespace millrace {
namespace {

void describe_config(const DecoderConfig& c, Inspection& i) {
  const auto add = [&](const char* key, auto value) { i.config.emplace_back(key, fmt::format("{}", value)); };
  add("layers", c.layers);
  add("hidden", c.hidden);
  add("feed forward", c.feed_forward);
  add("heads", fmt::format("{} ({} kv) of {}", c.heads, c.kv_heads, c.head_dim));
  add("vocabulary", c.vocab);
  add("context", c.context);
  if (c.window > 0) add("sliding window", c.window);
  if (c.rotary_dim != c.head_dim) add("rotary part", c.rotary_dim);
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
    const Runner planned(source, options);
    describe_config(planned.model().config(), i);
    i.memory = planned.memory();
  } catch (const Error& e) {
    i.problem = e.what();
  }
  return i;
}

}  // namespace millrace
