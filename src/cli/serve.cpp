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
#include "cli/cascade_options.h"
#include "cli/checks.h"
#include "cli/draft_options.h"
#include "cli/model_options.h"
#include "cli/named_models.h"
#include "cli/read_text.h"
#include "cli/served_adapters.h"
#include "cli/settings.h"
#include "engine/declared_model.h"
#include "engine/text_model.h"
#include "server/api_server.h"

namespace millrace {
namespace {

constexpr int64_t kScoredRows = 64;  // most prompt tokens with log-probabilities in one step

struct ServeOptions {
  ModelOptions model;
  DraftOptions draft;
  CascadeOptions cascade;
  ApiServerOptions server;
  std::string config, key_file, log_format;
  std::vector<std::string> models, names;
  std::string models_memory;
  std::string park_memory = "1GB", park_disk = "8GB";
  int load_seconds = 60;
  int64_t sequences = 32, kv_tokens = 32768;
  bool batch_invariant = false, no_prefix_cache = false;
  int64_t body_mb = 8;
  int drain_seconds = 30, request_seconds = 60;
};

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
  verb->add_option("-m,--model", o->models,
                   "a .gguf file, a Hugging Face folder, a name from 'millrace models', or a folder of models; may be "
                   "given several times, and then each is loaded when a request names it")
      ->allow_extra_args(false);
  add_model_options(*verb, o->model, ModelArgument::None, JsonFlag::No);
  verb->add_option("--models-memory", o->models_memory,
                   "memory for several models together, as 24GB; the least recently used idle one is unloaded for "
                   "another; default: what is free");
  verb->add_option("--load-seconds", o->load_seconds,
                   "with several models, a request waits this long for its model to be loaded")
      ->check(whole_number(0, 86400))
      ->capture_default_str();
  auto& s = o->server;
  verb->add_option("--host", s.http.host, "address to listen on; 0.0.0.0: all of this machine")->capture_default_str();
  verb->add_option("--port", s.http.port, "port to listen on; 0: any that is free")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  verb->add_option("--served-model-name", o->names,
                   "the model's name for clients; may be given several times; with several models, one for each")
      ->allow_extra_args(false);
  verb->add_option("--api-key-file", o->key_file,
                   "lines of KEY or NAME KEY; clients must send one (or MILLRACE_API_KEYS)");
  verb->add_option("--tls-cert", s.http.certificate, "certificate chain, PEM");
  verb->add_option("--tls-key", s.http.key, "its private key, PEM");
  verb->add_option("--cors", s.cors, "an origin whose pages may use the server, or *")->allow_extra_args(false);
  verb->add_option("--parallel", o->sequences, "sequences that run at once")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  verb->add_option("--kv-tokens", o->kv_tokens,
                   "positions of the KV cache, for all sequences together; 0: a whole context for each")
      ->check(whole_number(0, (int64_t(1) << 31) - 1))
      ->capture_default_str();
  verb->add_flag("--batch-invariant", o->batch_invariant, "answers do not depend on other running requests; slower");
  verb->add_flag("--no-prefix-cache", o->no_prefix_cache, "compute every prompt from its beginning");
  verb->add_option(
          "--park-memory", o->park_memory,
          "memory for the state of sessions whose clients run tools, once the KV cache is needed for others; 0: "
          "none")
      ->capture_default_str();
  verb->add_option("--park-dir", s.service.park.folder,
                   "a folder for such state that --park-memory cannot hold; it survives a restart; default: none");
  verb->add_option("--park-disk", o->park_disk, "bytes that each model may keep in --park-dir")->capture_default_str();
  verb->add_option("--park-seconds", s.service.park.seconds,
                   "such state is dropped when no request used it for so long")
      ->check(in_range(1, 1e9))
      ->capture_default_str();
  verb->add_option("--lora-dir", s.lora_dir, "clients may load adapters from this folder: POST /v1/load_lora_adapter");
  add_draft_options(*verb, o->draft);
  add_cascade_options(*verb, o->cascade);
  verb->add_option("--max-queue", s.service.most_waiting, "requests that wait; one more is answered 429")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  verb->add_option(
          "--tpot-ms", s.service.engine.tpot_target_ms,
          "prompts may not make running streams slower per token than this; 0: a tenth slower (a quarter on a GPU), or "
          "12 to 66 ms while short prompts are computed")
      ->check(in_range(0, 1e6))
      ->capture_default_str();
  verb->add_option("--max-body-mb", o->body_mb, "largest body of a request")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  verb->add_option("--max-connections", s.http.most_connections, "open at once")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--request-seconds", o->request_seconds, "a request must have arrived within this time")
      ->check(whole_number(1, 86400))
      ->capture_default_str();
  verb->add_option("--drain-seconds", o->drain_seconds, "after SIGTERM, running requests may take this long to finish")
      ->check(whole_number(0, 86400))
      ->capture_default_str();
  o->log_format = "auto";
  verb->add_option("--log-format", o->log_format, "json, text, or auto: text on a terminal")
      ->check(CLI::IsMember({"json", "text", "auto"}))
      ->capture_default_str();
  verb->add_option("--config", o->config, "a JSON file of these options: {\"port\": 9000}");
  verb->callback([o, verb] {
    apply_settings(*verb, o->config);
    serve(*o);
  });
}

}  // namespace millrace
