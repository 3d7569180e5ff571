// millrace serve: the OpenAI-compatible server.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/tell.h"
#include "cli/named_models.h"
#include "cli/read_text.h"
#include "cli/serve_options.h"
#include "cli/served_adapters.h"
#include "cli/settings.h"
#include "engine/declared_model.h"
#include "engine/text_model.h"
#include "server/api_server.h"

namespace millrace {
namespace {

constexpr int64_t kScoredRows = 64;  // most prompt tokens with log-probabilities in one step

ApiKeys read_keys(const std::string& file) {
  ApiKeys keys;
  std::string from_environment = environment().api_keys;
  std::replace(from_environment.begin(), from_environment.end(), ',', '\n');
  keys.add(from_environment, "MILLRACE_API_KEYS");
  if (!file.empty()) {
    keys.add(read_file_or_stdin(file), file);
    if (keys.empty()) fail(ErrorKind::Usage, "--api-key-file {}: has no key", file);
  }
  return keys;
}

int64_t parse_park(const char* option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) fail(ErrorKind::Usage, "{} {}: expected a size such as 2GB, or 0", option, text);
  return *bytes;
}

int64_t parse_memory(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0) fail(ErrorKind::Usage, "--models-memory {}: expected a size such as 24GB", text);
  return *bytes;
}

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1" || host == "localhost"; }

LoadedModel load(const ServeOptions& o, const std::string& model, const std::vector<ServedAdapter>& adapters,
                 std::shared_ptr<ThreadPool>& pool, const MakeRoom& make_room, bool in_cascade = false) {
  ModelOptions one = o.model;
  one.model = model;
  one.loras.clear();  // they are of several models
  auto source = open_model(one);
  LoadedModel loaded;
  find_architecture(*source);  // an unknown one explains more than a missing tokenizer
  loaded.text = load_text_model(*source);
  LoadOptions options = load_options(one);
  options.sequences = o.sequences;
  options.kv_tokens = o.kv_tokens;
  options.populate_kv = true;
  options.batch_invariant = o.batch_invariant;
  options.context_is_most = !o.server.models.empty();  // --ctx is for several models
  options.logit_rows = std::max<int64_t>(o.sequences, kScoredRows);
  const DraftSource drafts = open_drafts(o.draft, one, source, options);
  options.adapters = !o.server.lora_dir.empty();  // clients may load others
  for (const ServedAdapter& adapter : adapters) options.adapter_files.push_back({adapter.name, adapter.path});
  options.pool = pool;
  const auto plan = [&] { return std::make_unique<Runner>(source, options); };
  loaded.runner = plan();
  if (in_cascade) require_logits(*loaded.runner);
  if (make_room) {
    const MemoryPlan& memory = loaded.runner->memory();
    if (make_room(memory.total(), memory.available)) loaded.runner = plan();  // more memory may allow a longer context
  }
  load_weights(*loaded.runner);
  pool = loaded.runner->options().pool;
  loaded.drafter = make_drafter(drafts, *loaded.runner, loaded.text);
  return loaded;
}

// Reads the headers of local files at the start, so that a broken one is reported before a request wants it. Throws
// nothing that a file causes; empty: the model can probably be loaded.
std::string problem_of(const std::string& model, ThreadPool& pool) {
  std::error_code error;
  if (!std::filesystem::exists(model, error)) return "";
  try {
    const auto source = open_weights(model);
    const DeclaredModel declared(*source, pool);
    if (!has_tokenizer(*source)) load_tokenizer(*source);  // says what is missing
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

void set_models(ServeOptions& o, const std::vector<NamedModel>& models, std::shared_ptr<ThreadPool>& pool) {
  size_t broken = 0;
  ThreadPool one_thread(1);
  for (const NamedModel& model : models) {
    const std::string problem = problem_of(model.model, one_thread);
    const bool in_cascade = !o.cascade.models.empty() && o.server.models.size() < 2;
    if (in_cascade && !problem.empty()) fail(ErrorKind::BadFile, "--cascade: {}", problem);
    if (!problem.empty() && ++broken == models.size()) fail(ErrorKind::BadFile, "{}", problem);
    if (!problem.empty()) log().warn("{} cannot be loaded: {}; the other models are served", model.names[0], problem);
    const auto loader = [&o, &pool, name = model.model, in_cascade](const MakeRoom& make_room, const auto& adapters) {
      return load(o, name, adapters, pool, make_room, in_cascade);
    };
    o.server.models.push_back({model.names, loader, problem});
  }
}

// The models of the cascade come first.
std::vector<NamedModel> models_to_serve(const ServeOptions& o) {
  std::vector<std::string> given = cascade_models(o.cascade);
  for (const std::string& one : given) {
    if (named_models({one}, {}).size() == 1) continue;
    fail(ErrorKind::Usage, "--cascade {}: {} is a folder of several models", o.cascade.models, one);
  }
  for (const std::string& one : o.models) {
    if (given.size() < 2 || std::find(given.begin(), given.begin() + 2, one) == given.begin() + 2) given.push_back(one);
  }
  std::vector<NamedModel> models = named_models(given, o.names);
  if (o.cascade.models.empty()) return models;
  const std::string cascade = Cascade().name;
  for (const NamedModel& model : models) {
    if (std::find(model.names.begin(), model.names.end(), cascade) == model.names.end()) continue;
    fail(ErrorKind::Usage, "a model is called {}, as the cascade is: give each a name with --served-model-name",
         cascade);
  }
  return models;
}

Cascade cascade_of(const ServeOptions& o) {
  ModelOptions model = o.model;
  model.loras.clear();  // the models answer as they are
  const Cascade cascade = make_cascade(o.cascade, model);
  for (const ServedAdapter& adapter : o.server.adapters) {
    if (adapter.name == cascade.name) fail(ErrorKind::Usage, "--lora: {} is the name of the cascade", adapter.name);
  }
  return cascade;
}

void serve(ServeOptions& o) {
  ApiServerOptions& s = o.server;
  const bool text = o.log_format == "text" || (o.log_format == "auto" && isatty(STDERR_FILENO) != 0);
  s.log = text ? AccessLog::Format::Text : AccessLog::Format::Json;
  if (!text) log_as_json();
  const std::vector<NamedModel> models = models_to_serve(o);
  std::shared_ptr<ThreadPool> pool;  // all models compute on one: their steps take turns
  s.names = models.front().names;
  if (!o.models_memory.empty()) s.pool.memory = parse_memory(o.models_memory);
  s.adapters = served_adapters(o.model.loras, models);
  if (std::error_code error; !s.lora_dir.empty() && !std::filesystem::is_directory(s.lora_dir, error))
    fail(ErrorKind::Usage, "--lora-dir {}: is not a folder", s.lora_dir);
  if (models.size() > 1) set_models(o, models, pool);
  if (!o.cascade.models.empty()) s.cascade = cascade_of(o);
  s.service.park.memory = parse_park("--park-memory", o.park_memory);
  s.service.park.disk = parse_park("--park-disk", o.park_disk);
  s.pool.most_waiting = s.service.most_waiting;
  s.pool.patience = std::chrono::seconds(o.load_seconds);
  s.keys = read_keys(o.key_file);
  s.http.limits.body = static_cast<size_t>(o.body_mb) << 20;
  s.http.limits.bodies = std::max(s.http.limits.bodies, 4 * s.http.limits.body);
  s.http.limits.body_time = std::chrono::seconds(o.request_seconds);
  s.workers = static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 4, 2U, 8U));
  s.service.engine.prefix_cache = !o.no_prefix_cache;
  ApiServer server(s);
  if (s.keys.empty() && !is_loopback(s.http.host)) {
    log().warn("anyone who reaches {} may use this server: see --api-key-file", s.http.host);
  }
  server.start([&] { return load(o, models.front().model, o.server.adapters, pool, {}); });
  const std::string host = s.http.host.find(':') == std::string::npos ? s.http.host : "[" + s.http.host + "]";
  const std::string what = s.cascade ? fmt::format("a cascade of {} and {} with threshold {:.3f}", models[0].names[0],
                                                   models[1].names[0], s.cascade->threshold)
                           : models.size() == 1 ? s.names[0]
                                                : fmt::format("{} models", models.size());
  const std::string url = fmt::format("{}://{}:{}", s.http.certificate.empty() ? "http" : "https", host, server.port());
  tell(Stream::Stdout, "millrace serves {} at {}/v1; chat in a browser: {}/\n", what, url, url);
  // A server with several models goes on without one that fails.
  const auto failed = [&] { return models.size() == 1 && server.model().state() == ServedModel::State::Failed; };
  while (!interrupted() && !failed()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::string problem = failed() && !interrupted() ? server.model().problem() : "";
  server.stop(std::chrono::seconds(o.drain_seconds));
  if (!problem.empty()) fail(ErrorKind::Io, "{}", problem);
}

}  // namespace

void add_serve(CLI::App& app) {
  auto* verb = app.add_subcommand("serve", "Serve models over HTTP, as OpenAI's API");
  auto o = std::make_shared<ServeOptions>();
  add_serve_options(*verb, *o);
  verb->callback([o, verb] {
    apply_settings(*verb, o->config);
    serve(*o);
  });
}

}  // namespace millrace
