#include "api/load.h"

#include <algorithm>
#include <thread>

#include "api/guard.h"
#include "base/error.h"
#include "engine/adapter_name.h"
#include "engine/draft_source.h"
#include "models/model.h"
#include "store/store.h"
#include "tensor/kv_dtype.h"

namespace millrace {
namespace {

constexpr int64_t kRowsWithLogits = 64;  // in one step: prompts whose logits are wanted are cut into such chunks

void check_ranges(const millrace_model_options& o) {
  if (o.threads < 0 || o.threads > 1024) fail(ErrorKind::Usage, "threads {}: from 0 to 1024", o.threads);
  if (o.sequences < 1 || o.sequences > 1024) fail(ErrorKind::Usage, "sequences {}: from 1 to 1024", o.sequences);
  if (o.context < 0 || o.context > int64_t(1) << 30) fail(ErrorKind::Usage, "context {}: out of range", o.context);
  if (o.kv_tokens < 0 || o.kv_tokens >= int64_t(1) << 31)
    fail(ErrorKind::Usage, "kv_tokens {}: out of range", o.kv_tokens);
}

LoadOptions load_options(const millrace_model_options& o) {
  check_ranges(o);
  // More threads than CPUs would wait for each other: the computing threads spin between the parts of a step.
  const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  LoadOptions load{.threads = std::min(o.threads, cpus), .exact = o.exact != 0, .context = o.context};
  const std::string device = o.device != nullptr ? o.device : "auto";
  const auto choice = parse_device(device);
  if (!choice) fail(ErrorKind::Usage, "device '{}': one of cpu, cuda, cuda:N, auto", device);
  load.device = *choice;
  if (choice->kind == DeviceChoice::Cuda) {
    if (const std::string problem = cuda_problem(*choice); !problem.empty())
      fail(ErrorKind::Unsupported, "device '{}': {}", device, problem);
  }
  if (o.kv_type != nullptr && *o.kv_type != 0) {
    load.kv_type = kv_dtype_from_name(o.kv_type);
    if (!load.kv_type) fail(ErrorKind::Usage, "kv_type '{}': one of {}", o.kv_type, kKvDtypeNames);
    if (load.exact && load.kv_type != DType::F32)
      fail(ErrorKind::Usage, "exact keeps the KV cache in f32: leave out kv_type {}", o.kv_type);
  }
  load.sequences = o.sequences;
  load.kv_tokens = o.kv_tokens;
  load.logit_rows = std::max<int64_t>(o.sequences, kRowsWithLogits);
  load.batch_invariant = o.batch_invariant != 0;
  load.adapter_files = lora_files(o);
  load.adapters = o.load_loras != 0 || !load.adapter_files.empty();
  return load;
}

}  // namespace

std::vector<LoadOptions::AdapterPath> lora_files(const millrace_model_options& o) {
  std::vector<LoadOptions::AdapterPath> adapters;
  for (size_t i = 0; i < o.lora_count; ++i) {
    const millrace_lora& lora = required(o.loras, "loras")[i];
    add_adapter(adapters, lora.name != nullptr ? lora.name : "", required(lora.path, "the path of a lora"));
  }
  return adapters;
}

LoadedModel load_model(const std::string& model, const millrace_model_options& o) {
  LoadOptions options = load_options(o);
  const auto stop = [&o](int64_t done, int64_t total) {
    return o.progress != nullptr && o.progress(o.progress_user, done, total) != 0;
  };
  const auto open = [&](const std::string& name) -> std::shared_ptr<const WeightSource> {
    return open_weights(name.starts_with("synthetic:") ? name
                                                       : resolve_model(name, [&] { return stop(0, 0); }).string());
  };
  std::shared_ptr<const WeightSource> source = open(model);
  LoadedModel loaded;
  find_architecture(*source);  // an unknown one explains more than a missing tokenizer
  loaded.text = load_text_model(*source);
  if (o.chat_template != nullptr) {
    ChatTemplate(o.chat_template, "chat_template");  // reports errors before the model is loaded
    loaded.text.chat = load_chat_templates(*source, o.chat_template);
  }
  const DraftSource drafts = open_drafts(o.draft != nullptr ? o.draft : "lookup", source, open, options);
  loaded.runner = std::make_unique<Runner>(std::move(source), options);
  // A mapped file whose weights are used in place reports nothing itself.
  int64_t whole = static_cast<int64_t>(loaded.runner->memory().total());
  const auto report = [&](int64_t done, int64_t total) {
    whole = total;
    if (stop(done, total)) fail(ErrorKind::Cancelled, "loading was stopped");
  };
  report(0, whole);
  loaded.runner->load(report);
  report(whole, whole);
  loaded.drafter = make_drafter(drafts, *loaded.runner, loaded.text,
                                [&](Runner& runner) { runner.load([&](int64_t, int64_t) { report(whole, whole); }); });
  return loaded;
}

ServiceOptions service_options(const millrace_model_options& o) {
  ServiceOptions service;
  service.engine.prefix_cache = o.no_prefix_cache == 0;
  service.most_waiting = size_t(1) << 20;  // a program may queue a whole data set
  return service;
}

std::shared_ptr<ServedModel> load_for_library(const std::string& model, const millrace_model_options& o) {
  auto loaded = std::make_shared<LoadedModel>(load_model(model, o));
  const auto loader = [loaded](const MakeRoom&) { return std::move(*loaded); };
  auto served = std::make_shared<ServedModel>(std::vector<std::string>{model}, service_options(o), loader,
                                              ServedModel::State::Loading);
  served->load({});
  return served;
}

}  // namespace millrace
