// millrace models: models that can be downloaded by name, and those in the cache.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/print_json.h"
#include "cli/verb.h"
#include "engine/memory_plan.h"
#include "store/catalogue.h"
#include "store/store.h"

namespace millrace {
namespace {

void run(bool json) {
  const auto stored = stored_models();
  if (json) {
    nlohmann::json all{{"catalogue", nlohmann::json::array()}, {"cache", nlohmann::json::array()}};
    for (const auto& e : catalogue()) {
      all["catalogue"].push_back({{"name", e.name},
                                  {"about", e.about},
                                  {"licence", e.licence},
                                  {"from", e.from},
                                  {"bytes", e.bytes},
                                  {"default", &e == &default_model()}});
    }
    for (const auto& m : stored)
      all["cache"].push_back({{"name", m.name}, {"path", m.path.string()}, {"bytes", m.bytes}});
    print_json(all);
    return;
  }
  fmt::print("can be fetched by name (or give a Hugging Face id: owner/name, owner/name:file.gguf)\n");
  size_t names = 24, licences = 0;  // widths of the columns
  for (const auto& e : catalogue()) {
    names = std::max(names, e.name.size());
    licences = std::max(licences, e.licence.size());
  }
  fmt::print("  {:<{}}  {:>9}  {:<{}}  {}\n", "name", names, "size", "licence", licences, "model");
  for (const auto& e : catalogue()) {
    fmt::print("  {:<{}}  {:>9}  {:<{}}  {}{}\n", e.name, names, human_bytes(static_cast<int64_t>(e.bytes)), e.licence,
               licences, e.about, &e == &default_model() ? " (default)" : "");
  }
  fmt::print("in the cache\n");
  for (const auto& m : stored)
    fmt::print("  {:<{}}  {:>9}  {}\n", m.name, names, human_bytes(static_cast<int64_t>(m.bytes)), m.path.string());
  if (stored.empty()) fmt::print("  nothing yet\n");
}

}  // namespace

void add_models(CLI::App& app) {
  auto* verb = app.add_subcommand("models", "List the models that can be fetched by name, and those in the cache");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "one JSON object on stdout and nothing else");
  verb->callback([json] { run(*json); });
}

}  // namespace millrace
