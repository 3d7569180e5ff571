#include "server/api_server.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/percent.h"
#include "server/answer_json.h"
#include "server/model_choice.h"
#include "server/ollama_json.h"
#include "server/routes.h"

namespace millrace {
namespace {

constexpr std::string_view kRequestId = "X-Request-Id";

// Uses the client's own id if it is safe in logs and headers.
std::string request_id(std::string_view asked) {
  const auto plain = [](char c) { return is_ascii_alnum(c) || c == '-' || c == '_' || c == '.'; };
  const bool good = !asked.empty() && asked.size() <= 128 && std::all_of(asked.begin(), asked.end(), plain);
  return good ? std::string(asked) : make_id("req_");
}

HttpReply http_refusal(int status, const std::string& what) {
  HttpReply reply = error_reply({status, what, "", ""});
  reply.headers.emplace_back(kRequestId, make_id("req_"));
  return reply;
}

}  // namespace

ApiServer::ApiServer(ApiServerOptions options)
    : options_(std::move(options)),
      log_(options_.log),
      metrics_(several() ? "all" : options_.names.front()),
      adapters_(options_.adapters) {
  make_pool();
  workers_ = std::make_unique<TaskQueue>(options_.workers);
  downloads_ = std::make_unique<TaskQueue>(1);
  kept_ = std::make_unique<KeptStreams>(*workers_);
  http_ = std::make_unique<HttpServer>(
      options_.http, [this](std::shared_ptr<HttpExchange> exchange) { on_request(std::move(exchange)); }, http_refusal);
}

void ApiServer::make_pool() {
  if (!several()) {
    only_ = std::make_shared<ServedModel>(
        options_.names, options_.service,
        with_adapters(0, [this](const MakeRoom&, const auto&) { return load_only_(); }), ServedModel::State::Loading);
  }
  std::vector<ModelPool::Member> members;
  if (only_) members.push_back({options_.names, [this] { return only_; }});
  for (const ModelSpec& spec : options_.models) {
    const auto make = [this, &spec, load = with_adapters(members.size(), spec.load)] {
      return std::make_shared<ServedModel>(spec.names, options_.service, load, ServedModel::State::Unloaded);
    };
    members.push_back({spec.names, make, spec.problem});
  }
  models_ = std::make_unique<ModelPool>(std::move(members), options_.pool,
                                        [this](const ModelPool::Event& event) { on_model(event); });
}

ModelLoader ApiServer::with_adapters(size_t model, AdaptedLoader load) {
  return [this, model, load = std::move(load)](const MakeRoom& make_room) {
    std::vector<ServedAdapter> given = adapters_.of_model(model), of_clients;
    const auto from_client =
        std::stable_partition(given.begin(), given.end(), [](const auto& a) { return !a.from_client; });
    of_clients.assign(from_client, given.end());
    given.erase(from_client, given.end());
    LoadedModel loaded = load(make_room, given);
    for (const ServedAdapter& adapter : of_clients) place(adapter, *loaded.runner);
    return loaded;
  };
}

void ApiServer::place(const ServedAdapter& adapter, Runner& runner) {
  try {
    runner.rank().adapters().place(adapter.name, runner.rank().read_adapter(adapter.path));
  } catch (const Error& e) {
    if (!adapter.from_client) throw;
    adapters_.remove(adapter.name);
    log_.event("adapter_lost", {{"adapter", adapter.name}, {"message", e.what()}}, "error");
  }
}

ApiServer::~ApiServer() {
  stop(std::chrono::milliseconds(0));
  models_->join();  // its threads post to the workers
  downloads_.reset();
  workers_.reset();
  only_.reset();
  models_.reset();
}

void ApiServer::start(std::function<LoadedModel()> loader) {
  http_->start();
  log_.event("listening", {{"host", options_.http.host},
                           {"port", http_->port()},
                           {"tls", !options_.http.certificate.empty()},
                           {"keys", !options_.keys.empty()},
                           {"model", options_.cascade ? options_.cascade->name : models_->names(0).front()}});
  if (several()) return;
  load_only_ = std::move(loader);
  models_->preload(0);
}

void ApiServer::on_model(const ModelPool::Event& event) {
  const std::string& id = models_->names(event.model).front();
  const auto model = std::static_pointer_cast<ServedModel>(models_->peek(event.model));
  const auto ms = static_cast<int64_t>(event.seconds * 1000);
  switch (event.kind) {
    case ModelPool::Event::Loaded:
      return log_.event("ready", {{"model", id}, {"context", model->context()}, {"load_ms", ms}});
    case ModelPool::Event::Failed:
      return log_.event("load_failed", {{"model", id}, {"message", event.problem}}, "error");
    case ModelPool::Event::Unloading:
      metrics_.keep_totals(model->service().stats());
      return log_.event("unloading", {{"model", id}});
  }
}

void ApiServer::stop(std::chrono::milliseconds patience) {
  if (std::exchange(stopped_, true)) return;
  log_.event("draining", {{"connections", http_->connections()}, {"patience_ms", patience.count()}});
  http_->refuse_new();
  models_->close();
  const auto end = std::chrono::steady_clock::now() + patience;
  bool clean = true;
  for (size_t i = 0; i < models_->size(); ++i) {  // requests still running after that end with an error
    const auto left = end - std::chrono::steady_clock::now();
    const auto model = std::static_pointer_cast<ServedModel>(models_->peek(i));
    clean &= model->drain(
        std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left), std::chrono::milliseconds(0)));
  }
  const bool flushed = http_->drain(std::chrono::seconds(2));
  http_->stop();
  log_.event("stopped", {{"clean", clean && flushed}});
}

HttpHeaders ApiServer::common_headers(const HttpRequest& request, const std::string& id) const {
  HttpHeaders headers{{std::string(kRequestId), id}};
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return headers;
  const auto allowed = [&](const std::string& one) { return one == "*" || one == origin; };
  if (std::none_of(options_.cors.begin(), options_.cors.end(), allowed)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Expose-Headers", kRequestId);
  headers.emplace_back("Vary", "Origin");
  return headers;
}

void ApiServer::on_request(std::shared_ptr<HttpExchange> exchange) {
  const std::string id = request_id(exchange->request().header("x-request-id"));
  HttpHeaders headers = common_headers(exchange->request(), id);
  dispatch(std::make_shared<Call>(std::move(exchange), id, std::move(headers), metrics_, log_));
}

void ApiServer::preflight(Call& call) const {
  HttpReply reply{.status = 204, .content_type = ""};
  reply.headers.emplace_back("Allow", "GET, POST, DELETE, OPTIONS");
  reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  // Allows every requested header: SDKs add their own, which change between versions.
  const std::string_view asked = call.request().header("access-control-request-headers");
  if (!asked.empty()) reply.headers.emplace_back("Access-Control-Allow-Headers", asked);
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  call.reply(std::move(reply));
}

void ApiServer::dispatch(const std::shared_ptr<Call>& call) {
  const HttpRequest& request = call->request();
  call->protocol = protocol_of(request);
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const Route* found = nullptr;
  std::string allowed;
  for (const Route* route : routes_at(request.path)) {
    allowed += (allowed.empty() ? "" : ", ") + route->method;
    if (route->method == method) found = route;
  }
  if (allowed.empty()) {
    const std::string similar = similar_address(request.path);
    const std::string hint = similar.empty() ? "" : "; did you mean " + similar + "?";
    return call->fail({404, "there is nothing at " + request.path.substr(0, 200) + hint, "", "not_found"});
  }
  if (request.method == "OPTIONS" && !request.header("access-control-request-method").empty()) return preflight(*call);
  if (found == nullptr) {
    HttpReply reply = error_reply({405, "this address takes " + allowed, "", "method_not_allowed"}, call->protocol);
    reply.headers.emplace_back("Allow", allowed);
    return call->reply(std::move(reply));
  }
  call->route = found->path;
  if (!found->open && !options_.keys.empty()) {
    auto holder = options_.keys.holder(request.header("authorization"));
    if (!holder) holder = options_.keys.holder("Bearer " + std::string(request.header("x-api-key")));  // Anthropic's
    if (!holder) {
      return call->fail({401, "this server wants an API key: send Authorization: Bearer KEY", "", "invalid_api_key"});
    }
    call->client = *holder;
  }
  if (found->at_once) return run_without_choice(*found, call);
  workers_->post([this, found, call] {
    if (several() && found->chooses_model()) return choose_model(*found, call);
    run_without_choice(*found, call);
  });
}

void ApiServer::run_with(const Route& route, const std::shared_ptr<Call>& call, ServedModel& model) {
  ApiContext context{.model = model,
                     .models = *models_,
                     .adapters = adapters_,
                     .cascade = options_.cascade ? &*options_.cascade : nullptr,
                     .workers = *workers_,
                     .downloads = *downloads_,
                     .metrics = metrics_,
                     .kept = *kept_,
                     .stored = stored_,
                     .connections = [this] { return http_->connections(); },
                     .asks_for_keys = !options_.keys.empty(),
                     .lora_dir = options_.lora_dir};
  bool too_long = false;  // for the small model of a cascade
  guarded(*call, [&] {
    if (route.chooses_model() && model.has_adapters()) {
      const std::string name = call->asked_model();
      call->adapter = model.find_adapter(call->protocol == Protocol::Ollama ? without_latest(name) : name);
    }
    try {
      route.endpoint(call, context);
    } catch (const ApiError& e) {
      too_long = call->cascade && !call->usage.cascade && e.problem().code == "context_length_exceeded";
      if (!too_long) throw;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Busy || model.state() != ServedModel::State::Draining) throw;
      call->fail({503, e.what(), "", "shutting_down"});
    }
  });
  call->forget_body();
  if (!too_long) return;
  call->usage = {};
  escalate(call, context, std::nullopt, [this, &route, call](ServedModel& large) { run_with(route, call, large); });
}

void ApiServer::run_without_choice(const Route& route, const std::shared_ptr<Call>& call) {
  const auto model = std::static_pointer_cast<ServedModel>(models_->peek(models_->last_used()));
  run_with(route, call, *model);
}

// A request names a model, or an adapter and so the model that it changes.
std::optional<size_t> ApiServer::find_model(const Call& call, const std::string& name) const {
  if (name.empty()) return 0;
  if (const auto model = models_->find(name)) return model;
  if (const auto adapter = adapters_.find(name)) return adapter->model;
  const std::string plain = call.protocol == Protocol::Ollama ? without_latest(name) : name;
  return plain == name ? std::nullopt : find_model(call, plain);
}

bool ApiServer::names_cascade(const Call& call, const std::string& name) const {
  if (!options_.cascade) return false;
  const std::string& cascade = options_.cascade->name;
  return name.empty() || name == cascade || (call.protocol == Protocol::Ollama && without_latest(name) == cascade);
}

void ApiServer::choose_model(const Route& route, const std::shared_ptr<Call>& call) {
  guarded(*call, [&] {
    const std::string name = call->asked_model();
    if (name.empty() && route.model == Route::Model::Required)
      fail_field("model", "missing", "this server has several models: 'model' must say which one is meant");
    std::optional<size_t> model = find_model(*call, name);
    if (names_cascade(*call, name)) {
      const Cascade& cascade = *options_.cascade;
      if (!route.cascades) {
        fail_field("model", "unsupported_value", "{} is for answers, not for {}: name one of its models, {} or {}",
                   cascade.name, route.path, models_->names(cascade.small).front(),
                   models_->names(cascade.large).front());
      }
      call->cascade = &cascade;
      model = cascade.small;
    }
    if (!model) throw_unknown_model(name);
    with_model(call, *models_, *workers_, *model,
               [this, &route, call](ServedModel& chosen) { run_with(route, call, chosen); });
  });
}

}  // namespace millrace
