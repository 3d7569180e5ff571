// Options shared by all verbs that load a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "engine/runner.h"
#include "formats/weight_source.h"

namespace millrace {

struct ModelOptions {
  std::string model = "default";
  std::string device = "auto";
  int threads = 0;
  int64_t context = 0;
  std::string kv_type;
  std::string gpu_memory, cpu_memory;
  bool exact = false;
  std::string isa;
  std::vector<std::string> kernels;  // OP=NAME
  std::vector<std::string> loras;    // NAME=PATH or PATH
  int verbosity = 0;
  bool json = false;
};

enum class ModelArgument { Flag, Positional, None };
enum class JsonFlag { Yes, No };

// Adds -m/MODEL, --device, --threads, --ctx, --kv-type, --gpu-memory, --cpu-memory, --exact, --isa, --kernel, --lora,
// -v and, if requested, --json.
void add_model_options(CLI::App& verb, ModelOptions& options, ModelArgument argument = ModelArgument::Flag,
                       JsonFlag json = JsonFlag::Yes);

// Only -m/MODEL, -v and --json, for verbs that do not compute.
void add_file_options(CLI::App& verb, ModelOptions& options, ModelArgument argument = ModelArgument::Flag);

// Resolves the model (downloads it if it is a name), checks --device, sets the verbosity.
std::shared_ptr<const WeightSource> open_model(const ModelOptions& options);

LoadOptions load_options(const ModelOptions& options);

// An argument of --lora: PATH or NAME=PATH.
LoadOptions::AdapterPath parse_lora(const std::string& text);

void require_logits(const Runner& runner);  // refuses models without them by name

// Loads with a progress bar; an interrupt stops it.
void load_weights(Runner& runner);
// All sequences use the first adapter of --lora.
std::unique_ptr<Runner> load_runner(std::shared_ptr<const WeightSource> source, const LoadOptions& options);

}  // namespace millrace
