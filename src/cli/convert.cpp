// millrace convert: a Hugging Face folder to a GGUF file.
#include "convert/convert.h"
#include "cli/checks.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/recipe_names.h"
#include "engine/memory_plan.h"
#include "hardware/detect.h"

namespace millrace {
namespace {

struct ConvertVerbOptions {
  ModelOptions model;
  std::string out, type, lora;
  int threads = 0;
  bool force = false;
};

void run(const ConvertVerbOptions& o) {
  const QuantizeRecipe* recipe = o.type.empty() ? nullptr : find_recipe(o.type);
  if (!o.type.empty() && recipe == nullptr) fail(ErrorKind::Usage, "--type {}: one of {}", o.type, recipe_names());
  const auto source = open_model(o.model);
  const QuantizeRecipe& named = recipe != nullptr ? *recipe : recipe_of_folder(*source);
  const std::filesystem::path out = o.out.empty() ? converted_name(*source, named) : std::filesystem::path(o.out);
  if (std::error_code error; !o.force && std::filesystem::exists(out, error)) {
    fail(ErrorKind::Usage, "{}: is there already; --force replaces it", out.string());
  }
  ThreadPool pool(detect_cpu(o.threads).threads);
  std::unique_ptr<Progress> bar;
  const auto summary = convert_folder(*source, {out, recipe, o.lora}, pool, [&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("converting", total);
    bar->set(done);
    throw_if_interrupted();
  });
  bar.reset();
  if (o.model.json) {
    print_json({{"file", out.string()},
                {"type", named.name},
                {"tensors", summary.tensors},
                {"bytes_in", summary.bytes_in},
                {"bytes_out", summary.bytes_out}});
  } else {
    fmt::print("{}: {} tensors, {} -> {}\n", out.string(), summary.tensors, human_bytes(summary.bytes_in),
               human_bytes(summary.bytes_out));
  }
}

}  // namespace

void add_convert(CLI::App& app) {
  auto* verb = app.add_subcommand("convert", "Write a Hugging Face folder as a GGUF file");
  auto o = std::make_shared<ConvertVerbOptions>();
  add_file_options(*verb, o->model, ModelArgument::None);
  verb->add_option("FOLDER", o->model.model, "a folder with config.json, *.safetensors and tokenizer.json")->required();
  verb->add_option("OUT,-o,--out", o->out, "the file to write; FOLDER/NAME-TYPE.gguf if not given");
  verb->add_option("--type", o->type, fmt::format("one of {}; the folder's own format if not given", recipe_names()));
  verb->add_option("--lora", o->lora, "a low-rank adapter to add to the weights: a PEFT folder or a GGUF file");
  verb->add_flag("--force", o->force, "replace a file that is there already");
  verb->add_option("-t,--threads", o->threads, "CPU threads; 0: one per usable core")->check(whole_number(0, 1024));
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
