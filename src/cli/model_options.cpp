#include "cli/model_options.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/checks.h"
#include "engine/adapter_name.h"
#include "store/store.h"

namespace millrace {
namespace {

void add_model_argument(CLI::App& verb, ModelOptions& o, ModelArgument argument) {
  const std::string about =
      "a .gguf file, a Hugging Face folder, a name from 'millrace models', or synthetic:SHAPE[:DTYPE]";
  if (argument == ModelArgument::Flag) verb.add_option("-m,--model", o.model, about)->capture_default_str();
  if (argument == ModelArgument::Positional) verb.add_option("MODEL,-m,--model", o.model, about)->required();
}

std::string device_syntax_problem(const std::string& device) {
  return parse_device(device) ? "" : device + " is none of cpu, cuda, cuda:N, auto";
}

DeviceChoice device_choice(const std::string& device) {
  const auto choice = parse_device(device);
  if (!choice) fail(ErrorKind::Usage, "--device {}", device_syntax_problem(device));
  return *choice;
}

// Called before the model is resolved: a missing GPU should fail before a download.
void check_device(const DeviceChoice& choice) {
  if (choice.kind != DeviceChoice::Cuda) return;
  if (const std::string problem = cuda_problem(choice); !problem.empty())
    fail(ErrorKind::Unsupported, "--device {}: {}", to_string(choice), problem);
}

// More threads than CPUs would wait for each other: the computing threads spin between the parts of a step.
int usable_threads(int wanted) {
  const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (wanted <= cpus) return wanted;
  log().warn("--threads {}: this machine has {} CPUs, so {} threads compute", wanted, cpus, cpus);
  return cpus;
}

}  // namespace

void add_file_options(CLI::App& verb, ModelOptions& o, ModelArgument argument) {
  add_model_argument(verb, o, argument);
  verb.add_flag("-v,--verbose", o.verbosity, "log decisions and their reasons; -vv logs more");
  verb.add_flag("--json", o.json, "one JSON object on stdout and nothing else");
}

void add_model_options(CLI::App& verb, ModelOptions& o, ModelArgument argument, JsonFlag json) {
  add_model_argument(verb, o, argument);
  verb.add_option("--device", o.device,
                  "cpu, cuda (the first GPU), cuda:N, or auto: a GPU if one is usable, else the CPU")
      ->check(device_syntax_problem)
      ->capture_default_str();
  verb.add_option("-t,--threads", o.threads, "CPU threads; 0: one per usable core")
      ->check(whole_number(0, 1024))
      ->capture_default_str();
  verb.add_option("--ctx", o.context, "context length in tokens; 0: the model's, or what memory allows")
      ->check(whole_number(0, 1 << 30))
      ->capture_default_str();
  verb.add_option(
      "--kv-type", o.kv_type,
      "number format of the KV cache: f32, f16, bf16, q8_0, fp8 (e4m3); default: f16; on a GPU bf16 for bf16 and "
      "quantized weights");
  verb.add_option(
      "--gpu-memory", o.gpu_memory,
      "GPU memory that the model may take, as 24GB or 24GiB; default: what is free. Weights beyond it stay in "
      "host memory, experts first, and the CPU computes their layers");
  verb.add_option(
      "--cpu-memory", o.cpu_memory,
      "main memory that the model may take, as 24GB or 24GiB; default: what is free. If experts do not fit, "
      "they stay in the mapped file and are read as needed");
  verb.add_flag("--exact", o.exact, "f32 activations, KV cache and arithmetic: for conformance, slower");
  verb.add_option("--isa", o.isa, "use no instruction set above this one (see 'millrace doctor')");
  verb.add_option("--kernel", o.kernels, "force a kernel, as OP=NAME (see 'millrace explain')")
      ->allow_extra_args(false);
  verb.add_option(
          "--lora", o.loras,
          "a low-rank adapter, as PATH or NAME=PATH: a PEFT folder or a GGUF file; may be given several times. "
          "'serve' offers each under its name, with several models as MODEL:NAME=PATH; other verbs use the first")
      ->allow_extra_args(false);
  verb.add_flag("-v,--verbose", o.verbosity, "log decisions and their reasons; -vv logs more");
  if (json == JsonFlag::Yes) verb.add_flag("--json", o.json, "one JSON object on stdout and nothing else");
}

std::shared_ptr<const WeightSource> open_model(const ModelOptions& o) {
  set_verbosity(o.verbosity);
  check_device(device_choice(o.device));
  return open_weights(o.model.starts_with("synthetic:") ? o.model : resolve_model(o.model, interrupted).string());
}

LoadOptions load_options(const ModelOptions& o) {
  LoadOptions load{.device = device_choice(o.device),
                   .threads = usable_threads(o.threads),
                   .isa = o.isa,
                   .exact = o.exact,
                   .context = o.context};
  if (!o.kv_type.empty()) {
    load.kv_type = kv_dtype_from_name(o.kv_type);
    if (o.exact && load.kv_type && load.kv_type != DType::F32)
      fail(ErrorKind::Usage, "--exact keeps the KV cache in f32: leave out --kv-type {}", o.kv_type);
    if (!load.kv_type) fail(ErrorKind::Usage, "--kv-type {}: one of {}", o.kv_type, kKvDtypeNames);
  }
  const auto size = [](const char* option, const std::string& text) {
    const auto bytes = parse_bytes(text);
    if (!bytes || *bytes == 0) fail(ErrorKind::Usage, "{} {}: expected a size such as 24GB", option, text);
    return *bytes;
  };
  if (!o.gpu_memory.empty()) load.gpu_memory = size("--gpu-memory", o.gpu_memory);
  if (!o.cpu_memory.empty()) load.cpu_memory = size("--cpu-memory", o.cpu_memory);
  for (const std::string& lora : o.loras) {
    const auto [name, path] = parse_lora(lora);
    add_adapter(load.adapter_files, name, path);
  }
  for (const auto& choice : o.kernels) {
    const auto equals = choice.find('=');
    if (equals == std::string::npos) fail(ErrorKind::Usage, "--kernel {}: expected OP=NAME", choice);
    const std::string op = choice.substr(0, equals), kernel = choice.substr(equals + 1);
    if (kernel.empty()) fail(ErrorKind::Usage, "--kernel {}: expected OP=NAME", choice);
    if (!load.forced.emplace(op, kernel).second) fail(ErrorKind::Usage, "--kernel {}: {} is forced twice", choice, op);
  }
  return load;
}

LoadOptions::AdapterPath parse_lora(const std::string& text) {
  const auto equals = text.find('=');
  const std::string path = equals == std::string::npos ? text : text.substr(equals + 1);
  const std::string name = equals == std::string::npos ? adapter_name(path) : text.substr(0, equals);
  if (name.empty() || path.empty()) fail(ErrorKind::Usage, "--lora {}: expected PATH or NAME=PATH", text);
  return {name, path};
}

void require_logits(const Runner& runner) {
  if (runner.model().pools())
    fail(ErrorKind::Usage,
         "{}: an embedding model or a cross-encoder has no logits; 'serve' offers its vectors and scores",
         runner.source().origin());
}

void load_weights(Runner& runner) {
  std::unique_ptr<Progress> bar;
  runner.load([&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("loading", total, Progress::Unit::Bytes);
    bar->set(done);
    throw_if_interrupted();
  });
}

std::unique_ptr<Runner> load_runner(std::shared_ptr<const WeightSource> source, const LoadOptions& options) {
  auto runner = std::make_unique<Runner>(std::move(source), options);
  load_weights(*runner);
  if (!options.adapter_files.empty())
    runner->rank().tables().usual_adapter = runner->rank().adapters().find(options.adapter_files.front().name)->slot;
  return runner;
}

}  // namespace millrace
