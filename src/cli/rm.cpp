// millrace rm: deletes models from the cache.
#include <fmt/core.h>

#include "base/interrupt.h"
#include "cli/verb.h"
#include "engine/memory_plan.h"
#include "store/store.h"

namespace millrace {

void add_rm(CLI::App& app) {
  auto* verb = app.add_subcommand("rm", "Delete models from the cache");
  auto names = std::make_shared<std::vector<std::string>>();
  verb->add_option("NAME", *names, "names as 'millrace models' lists them; files elsewhere are never deleted")
      ->required();
  verb->callback([names] {
    for (const std::string& name : *names) {
      const uint64_t bytes = remove_model(name, interrupted);
      fmt::print("deleted {} ({})\n", name, human_bytes(static_cast<int64_t>(bytes)));
    }
  });
}

}  // namespace millrace
