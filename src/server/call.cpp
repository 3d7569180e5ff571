#include "server/call.h"

#include <fmt/format.h>

#include "base/ascii.h"
#include "server/access_log.h"
#include "server/metrics.h"

namespace millrace {
namespace {

constexpr int kClientGone = 499;  // nginx's code; never sent, but used in logs and metrics

}  // namespace

Call::Call(std::shared_ptr<HttpExchange> exchange, std::string id, HttpHeaders headers, Metrics& metrics,
           AccessLog& log)
    : exchange_(std::move(exchange)), id_(std::move(id)), headers_(std::move(headers)), metrics_(metrics), log_(log) {}

Call::~Call() {
  if (!answered_) ended(kClientGone);
}

std::shared_ptr<Call> Call::continued_on(std::shared_ptr<HttpConnection> connection) const {
  HttpRequest request{.method = exchange_->request().method, .path = exchange_->request().path};
  request.peer = exchange_->request().peer;
  auto exchange = std::make_shared<HttpExchange>(std::move(connection), std::move(request));
  auto call = std::make_shared<Call>(std::move(exchange), id_, HttpHeaders{}, metrics_, log_);
  call->protocol = protocol;
  call->route = route + " in the background";
  call->client = client;
  call->model_lease = model_lease;
  call->adapter = adapter;
  call->cascade = cascade;
  return call;
}

const Json& Call::body() {
  if (body_) return *body_;
  const std::string type = ascii_lower(request().header("content-type"));
  // Ollama's documentation calls curl without a content type. A page of another origin must not profit from that.
  const bool lenient = protocol == Protocol::Ollama && request().header("origin").empty();
  if (!lenient && !type.empty() && !type.starts_with("application/json")) {
    throw ApiError({415, "the body must be JSON: send Content-Type: application/json", "", ""});
  }
  const std::string coding = ascii_lower(request().header("content-encoding"));
  if (!coding.empty() && coding != "identity") {
    throw ApiError(
        {415, fmt::format("a body in Content-Encoding {} is not supported: send it as it is", coding), "", ""});
  }
  return body_.emplace(parse_json(request().body));
}

void Call::reply(const Json& json) { reply(HttpReply{.body = to_text(json)}); }

void Call::reply(HttpReply reply) {
  const int status = reply.status;
  reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
  exchange_->reply(std::move(reply));
  ended(status);
}

std::string Call::asked_model() {
  if (request().method != "POST") {
    const std::string_view query = request().query;
    return query.starts_with("model=") ? percent_decode(query.substr(6, query.find('&') - 6)) : "";
  }
  const Json& json = body();
  for (const char* field : {"model", "name"}) {
    if (const auto found = json.find(field); json.is_object() && found != json.end() && found->is_string()) {
      return found->get<std::string>();
    }
  }
  return "";
}

void Call::fail(const ApiProblem& problem) {
  if (answered_) return;
  log_.problem(*this, problem);
  if (!streaming_) return reply(error_reply(problem, protocol));
  if (protocol == Protocol::Anthropic) pending_ += "event: error\n";
  raw_event(error_body(problem, protocol));
  flush();
  exchange_->end_stream();
  ended(problem.status);
}

void Call::begin_events() {
  streaming_ = true;
  const bool lines = protocol == Protocol::Ollama;
  HttpReply head{.content_type = lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8",
                 .headers = headers_};
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // nginx and others would buffer the stream
  exchange_->begin_stream(std::move(head));
}

void Call::event(const Json& data, const char* name) {
  if (name != nullptr) pending_.append("event: ").append(name).append("\n");
  raw_event(to_text(data));
}

void Call::raw_event(std::string_view data) {
  if (protocol == Protocol::Ollama) {
    pending_.append(data).append("\n");
  } else {
    pending_.append("data: ").append(data).append("\n\n");
  }
}

void Call::relay(std::string_view events) {
  pending_ += events;
  flush();
}

void Call::flush() {
  if (pending_.empty()) return;
  exchange_->write(std::exchange(pending_, {}));
}

void Call::end_events() {
  flush();
  exchange_->end_stream();
  ended(200);
}

void Call::ended(int status) {
  answered_ = true;
  const double seconds = std::chrono::duration<double>(Clock::now() - arrived_).count();
  metrics_.count_http(route, status, seconds);
  log_.request(*this, status, seconds);
}

}  // namespace millrace
