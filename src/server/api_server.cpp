#include "server/api_server.h"

#include <algorithm>

#include "base/ascii.h"
#include "server/answer_json.h"
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

// Runs an endpoint and turns its exceptions into error answers.
void run(const Route& route, const std::shared_ptr<Call>& call, ApiContext& context) {
  try {
    route.endpoint(call, context);
  } catch (const ApiError& e) {
    call->fail(e.problem());
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Busy && context.model.state() == ServedModel::State::Draining) {
      return call->fail({503, e.what(), "", "shutting_down"});
    }
    call->fail(to_problem(e));
  } catch (const std::bad_alloc&) {
    call->fail({503, "out of memory for this request", "", "out_of_memory"});
  } catch (const std::exception& e) {
    call->fail({500, std::string("internal error: ") + e.what(), "", ""});
  }
}

}  // namespace

ApiServer::ApiServer(ApiServerOptions options)
    : options_(std::move(options)), log_(options_.log), metrics_(options_.names.front()) {
  model_ = std::make_unique<ServedModel>(options_.names, options_.service);
  workers_ = std::make_unique<TaskQueue>(options_.workers);
  downloads_ = std::make_unique<TaskQueue>(1);
  kept_ = std::make_unique<KeptStreams>(*workers_);
  http_ = std::make_unique<HttpServer>(
      options_.http, [this](std::shared_ptr<HttpExchange> exchange) { on_request(std::move(exchange)); }, http_refusal);
  context_ = std::make_unique<ApiContext>(ApiContext{.model = *model_,
                                                     .workers = *workers_,
                                                     .downloads = *downloads_,
                                                     .metrics = metrics_,
                                                     .kept = *kept_,
                                                     .connections = [this] { return http_->connections(); },
                                                     .asks_for_keys = !options_.keys.empty()});
}

ApiServer::~ApiServer() {
  stop(std::chrono::milliseconds(0));
  downloads_.reset();
  workers_.reset();
  model_.reset();
}

void ApiServer::start(std::function<LoadedModel()> loader) {
  http_->start();
  log_.event("listening", {{"host", options_.http.host},
                           {"port", http_->port()},
                           {"tls", !options_.http.certificate.empty()},
                           {"keys", !options_.keys.empty()},
                           {"model", model_->id()}});
  const auto begun = std::chrono::steady_clock::now();
  // Captures the model by reference: model_ is already null when the server's destructor waits for this.
  model_->load(std::move(loader), [this, begun, &model = *model_](const std::string& problem) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    if (problem.empty()) {
      log_.event("ready", {{"model", model.id()}, {"context", model.context()}, {"load_ms", ms.count()}});
    } else {
      log_.event("load_failed", {{"model", model.id()}, {"message", problem}}, "error");
    }
  });
}

void ApiServer::stop(std::chrono::milliseconds patience) {
  if (std::exchange(stopped_, true)) return;
  log_.event("draining", {{"connections", http_->connections()}, {"patience_ms", patience.count()}});
  http_->refuse_new();
  const bool clean = model_->drain(patience);  // requests still running after that end with an error
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
  if (found->at_once) return run(*found, call, *context_);
  workers_->post([this, found, call] { run(*found, call, *context_); });
}

}  // namespace millrace
