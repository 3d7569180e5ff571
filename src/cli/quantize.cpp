// millrace quantize: converts a GGUF file to another number format.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/mapped_file.h"
#include "base/progress.h"
#include "cli/checks.h"
#include "cli/imatrix.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/recipe_names.h"
#include "engine/memory_plan.h"
#include "formats/quantize_model.h"
#include "hardware/detect.h"

namespace millrace {
namespace {

struct QuantizeOptions {
  ModelOptions model;
  std::string out, type, imatrix;
  int threads = 0;
};

// Reads --imatrix: an importance matrix, or a text to run through the model that is quantized.
Imatrix importance(const QuantizeOptions& o, const std::shared_ptr<const WeightSource>& source) {
  const MappedFile file(o.imatrix);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (bytes.starts_with("GGUF")) return Imatrix::read(o.imatrix);
  if (bytes.find('\0') != std::string_view::npos) {
    fail(ErrorKind::BadFile, "{}: neither a text nor an importance matrix in GGUF; llama-imatrix writes one with -o {}",
         o.imatrix, "imatrix.gguf");
  }
  return {o.imatrix, importance_of_text(source, {.threads = o.threads}, o.imatrix, 0)};
}

void run(const QuantizeOptions& o) {
  const QuantizeRecipe* recipe = find_recipe(o.type);
  if (recipe == nullptr) fail(ErrorKind::Usage, "--type {}: one of {}", o.type, recipe_names());
  const auto source = open_model(o.model);
  refuse_to_replace(o.out, *source);  // before a text is read, which takes minutes
  std::optional<Imatrix> imatrix;
  if (!o.imatrix.empty()) imatrix = importance(o, source);
  ThreadPool pool(detect_cpu(o.threads).threads);
  std::unique_ptr<Progress> bar;
  const auto progress = [&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("quantizing", total);
    bar->set(done);
    throw_if_interrupted();
  };
  const auto summary = quantize_model(*source, o.out, *recipe, pool, progress, imatrix ? &*imatrix : nullptr);
  bar.reset();
  if (o.model.json) {
    print_json({{"file", o.out},
                {"type", recipe->name},
                {"tensors", summary.tensors},
                {"bytes_in", summary.bytes_in},
                {"bytes_out", summary.bytes_out}});
  } else {
    fmt::print("{}: {} tensors, {} -> {}\n", o.out, summary.tensors, human_bytes(summary.bytes_in),
               human_bytes(summary.bytes_out));
  }
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto* verb = app.add_subcommand("quantize", "Write a GGUF file in another number format");
  auto o = std::make_shared<QuantizeOptions>();
  add_file_options(*verb, o->model, ModelArgument::None);
  verb->add_option("IN", o->model.model, "a .gguf file, or a name from 'millrace models'")->required();
  verb->add_option("OUT", o->out, "the file to write")->required();
  verb->add_option("--type", o->type, fmt::format("one of {}", recipe_names()))->required();
  verb->add_option(
      "--imatrix", o->imatrix,
      "an importance matrix of 'millrace imatrix' or llama.cpp's llama-imatrix (GGUF), or a text to collect one "
      "from: errors count by column");
  verb->add_option("-t,--threads", o->threads, "CPU threads; 0: one per usable core")->check(whole_number(0, 1024));
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
