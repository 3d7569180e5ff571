// millrace pull: downloads a model into the cache.
#include <fmt/core.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "cli/verb.h"
#include "store/store.h"

namespace millrace {

void add_pull(CLI::App& app) {
  auto* verb = app.add_subcommand("pull", "Download a model into the cache, or continue a download");
  auto name = std::make_shared<std::string>();
  verb->add_option("NAME", *name, "a name from 'millrace models', or a Hugging Face id")->required();
  verb->callback([name] { fmt::print("{}\n", pull_model(*name, interrupted).string()); });
}

}  // namespace millrace
