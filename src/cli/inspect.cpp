// millrace inspect: the contents of a model file and the memory it needs.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "engine/measure/inspection.h"

namespace millrace {
namespace {

bool fits(const MemoryPlan& plan) { return plan.total() <= plan.available; }

nlohmann::json to_json(const MemoryPlan& plan) {
  nlohmann::json lines = nlohmann::json::array();
  for (const auto& line : plan.lines) lines.push_back({{"what", line.what}, {"bytes", line.bytes}});
  return {{"lines", lines}, {"total", plan.total()}, {"available", plan.available}, {"fits", fits(plan)}};
}

nlohmann::json to_json(const HostShare& share) {
  if (!share.any()) return nullptr;
  return {{"expert_layers", share.expert_layers},
          {"all_expert_layers", share.all_expert_layers},
          {"experts", share.experts},
          {"all_experts", share.all_experts},
          {"matrices", share.linears},
          {"all_matrices", share.all_linears},
          {"bytes", share.bytes},
          {"bytes_per_token", share.bytes_of_a_row},
          {"added_ms_per_token", share.penalty_us * 1e-3},
          {"stream_rows", share.stream_rows},
          {"hand_over_us", share.rates.link.hand_over_us},
          {"gbs", {{"host", share.rates.host_gbs}, {"gpu", share.rates.device_gbs}, {"link", share.rates.link.gbs}}},
          {"memory", to_json(share.memory)}};
}

nlohmann::json to_json(const MappedExperts& experts) {
  if (!experts.any()) return nullptr;
  return {{"bytes", experts.bytes},
          {"bytes_per_token", experts.bytes_of_a_row},
          {"room", experts.room},
          {"storage_gbs", experts.storage_gbs},
          {"storage_ms_per_token", experts.storage_us() * 1e-3}};
}

nlohmann::json to_json(const Inspection& i) {
  nlohmann::json tensors = nlohmann::json::array(), config = nlohmann::json::object();
  for (const auto& t : i.tensors)
    tensors.push_back({{"name", t.name}, {"type", t.type}, {"shape", t.shape}, {"bytes", t.bytes}});
  for (const auto& [key, value] : i.config) config[key] = value;
  return {{"model", i.origin},
          {"architecture", i.architecture},
          {"supported", i.problem.empty()},
          {"problem", i.problem},
          {"parameters", i.parameters},
          {"active_parameters", i.active_parameters},
          {"bytes", i.bytes},
          {"config", config},
          {"tensors", tensors},
          {"memory", to_json(i.memory)},
          {"host", to_json(i.host)},
          {"mapped_experts", to_json(i.mapped)},
          {"predicted",
           {{"prompt", i.prompt},
            {"ttft_ms", i.first_token_ms},
            {"depth", i.depth},
            {"tokens_per_second", i.tokens_per_second}}}};
}

void print(const char* title, const MemoryPlan& plan) {
  fmt::print("{}\n", title);
  for (const auto& line : plan.lines) fmt::print("  {:<36} {:>10}\n", line.what, human_bytes(line.bytes));
  fmt::print("  {:<36} {:>10} of {} available\n", "in all", human_bytes(plan.total()), human_bytes(plan.available));
}

void print(const Inspection& i, bool all_tensors) {
  const bool sparse = i.problem.empty() && i.active_parameters < i.parameters;
  fmt::print("{}: {}, {:.1f} M parameters, {}{}\n", printable(i.origin), printable(i.architecture),
             double(i.parameters) / 1e6,
             sparse ? fmt::format("{:.1f} M of them per token, ", double(i.active_parameters) / 1e6) : "",
             human_bytes(i.bytes));
  for (const auto& [key, value] : i.config) fmt::print("  {:<18} {}\n", key, printable(value));
  std::map<std::string, std::pair<int64_t, int64_t>> by_type;
  for (const auto& t : i.tensors) {
    by_type[t.type].first += 1;
    by_type[t.type].second += t.bytes;
  }
  fmt::print("tensors\n");
  for (const auto& [type, sum] : by_type)
    fmt::print("  {:<8} {:>5} tensors, {}\n", type, sum.first, human_bytes(sum.second));
  if (all_tensors) {
    for (const auto& t : i.tensors)
      fmt::print("  {:<44} {:<7} {:<20} {}\n", printable(t.name), t.type, fmt::format("{}", fmt::join(t.shape, " x ")),
                 human_bytes(t.bytes));
  }
  if (!i.problem.empty()) {
    fmt::print("cannot be run: {}\n", i.problem);
    return;
  }
  print("memory to run it", i.memory);
  if (i.host.any()) {
    fmt::print("{}\n", i.host.to_string());
    print("host memory to run it", i.host.memory);
  }
  if (i.mapped.any()) fmt::print("{}\n", i.mapped.to_string());
  for (const MemoryPlan* plan : {&i.memory, &i.host.memory}) {
    if (fits(*plan)) continue;
    fmt::print("does not fit: {} are missing\n", human_bytes(plan->total() - plan->available));
    return;
  }
  fmt::print("expected speed\n  {:<36} {:>10.0f} ms\n", fmt::format("first token after {} of a prompt", i.prompt),
             i.first_token_ms);
  fmt::print("  {:<36} {:>10.1f} tokens/s\n", fmt::format("then, at depth {}", i.depth), i.tokens_per_second);
}

}  // namespace

void add_inspect(CLI::App& app) {
  struct Options {
    ModelOptions model;
    bool tensors = false;
  };
  auto* verb = app.add_subcommand("inspect", "Show a model's configuration, tensors, sizes and memory plan");
  auto o = std::make_shared<Options>();
  add_model_options(*verb, o->model, ModelArgument::Positional);
  verb->add_flag("--tensors", o->tensors, "list every tensor");
  verb->callback([o] {
    const auto inspection = inspect(open_model(o->model), load_options(o->model));
    if (o->model.json) {
      print_json(to_json(inspection));
    } else {
      print(inspection, o->tensors);
    }
  });
}

}  // namespace millrace
