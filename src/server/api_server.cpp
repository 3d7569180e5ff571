#include "server/api_server.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/percent.h"
#include "server/answer_json.h"
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

// Runs a part of an endpoint and turns its exceptions into error answers.
template <class Work>
void guarded(Call& call, const Work& work) {
  try {
    work();
  } catch (const ApiError& e) {
    call.fail(e.problem());
  } catch (const Error& e) {
    call.fail(to_problem(e));
  } catch (const std::bad_alloc&) {
    call.fail({503, "out of memory for this request", "", "out_of_memory"});
  } catch (const std::exception& e) {
    call.fail({500, std::string("internal error: ") + e.what(), "", ""});
  }
}

ApiProblem refusal_problem(ModelPool::Refusal why, const std::string& name, const std::string& problem) {
  switch (why) {
    case ModelPool::Refusal::Loading:
      return {503, fmt::format("the model '{}' is still loading, or others need its memory; try again", name), "",
              "loading"};
    case ModelPool::Refusal::Busy:
      return {503, "too many requests wait for models to be loaded; try again", "", "queue_full"};
    case ModelPool::Refusal::Failed:
      return {503, fmt::format("the model '{}' cannot be loaded: {}", name, problem), "model", "load_failed"};
    case ModelPool::Refusal::Closed:
      break;
  }
  return {503, "the server is shutting down", "", "shutting_down"};
}

// The body's "model", or "name" in Ollama's older requests; for requests without a body the query's model=NAME.
std::string asked_model(Call& call) {
  if (call.request().method != "POST") {
    const std::string_view query = call.request().query;
    return query.starts_with("model=") ? percent_decode(query.substr(6, query.find('&') - 6)) : "";
  }
  const Json& body = call.body();
  for (const char* field : {"model", "name"}) {
    if (const auto found = body.find(field); body.is_object() && found != body.end() && found->is_string()) {
      return found->get<std::string>();
    }
  }
  return "";
}

}  // namespace

ApiServer::ApiServer(ApiServerOptions options)
    : options_(std::move(options)), log_(options_.log), metrics_(several() ? "all" : options_.names.front()) {
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
        options_.names, options_.service, [this](const MakeRoom&) { return load_only_(); },
        ServedModel::State::Loading);
  }
  std::vector<ModelPool::Member> members;
  if (only_) members.push_back({options_.names, [this] { return only_; }});
  for (const ModelSpec& spec : options_.models) {
    const auto make = [this, &spec] {
      return std::make_shared<ServedModel>(spec.names, options_.service, spec.load, ServedModel::State::Unloaded);
    };
    members.push_back({spec.names, make, spec.problem});
  }
  models_ = std::make_unique<ModelPool>(std::move(members), options_.pool,
                                        [this](const ModelPool::Event& event) { on_model(event); });
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
                           {"model", models_->names(0).front()}});
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
  for (const Route& route : routes()) {
    if (!route.matches(request.path)) continue;
    allowed += (allowed.empty() ? "" : ", ") + route.method;
    if (route.method == method) found = &route;
  }
  if (allowed.empty()) return call->fail({404, "there is nothing at " + request.path.substr(0, 200), "", "not_found"});
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
                     .workers = *workers_,
                     .downloads = *downloads_,
                     .metrics = metrics_,
                     .kept = *kept_,
                     .connections = [this] { return http_->connections(); },
                     .asks_for_keys = !options_.keys.empty(),
                     .lora_dir = options_.lora_dir};
  guarded(*call, [&] {
    if (route.chooses_model() && model.has_adapters()) {
      const std::string name = asked_model(*call);
      call->adapter = model.find_adapter(call->protocol == Protocol::Ollama ? without_latest(name) : name);
    }
    try {
      route.endpoint(call, context);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Busy || model.state() != ServedModel::State::Draining) throw;
      call->fail({503, e.what(), "", "shutting_down"});
    }
  });
  call->forget_body();
}

void ApiServer::run_without_choice(const Route& route, const std::shared_ptr<Call>& call) {
  const auto model = std::static_pointer_cast<ServedModel>(models_->peek(models_->last_used()));
  run_with(route, call, *model);
}

void ApiServer::choose_model(const Route& route, const std::shared_ptr<Call>& call) {
  guarded(*call, [&] {
    const std::string name = asked_model(*call);
    std::optional<size_t> model = name.empty() ? 0 : models_->find(name);
    if (!model && call->protocol == Protocol::Ollama) model = models_->find(without_latest(name));
    if (!model) throw_unknown_model(name);
    const auto ready = [this, &route, call](const ModelPool::Lease& lease) {
      if (call->exchange().gone()) return;
      call->model_lease = lease;
      workers_->post([this, &route, call] {
        run_with(route, call, *static_cast<ServedModel*>(static_cast<PooledModel*>(call->model_lease.get())));
      });
    };
    const auto refused = [call, id = models_->names(*model).front()](ModelPool::Refusal why,
                                                                     const std::string& problem) {
      call->fail(refusal_problem(why, id, problem));
    };
    models_->acquire(*model, ready, refused);
  });
}

}  // namespace millrace
