// One API call: its HTTP exchange, its client, and its answer, whole or as a stream of events. It is counted and logged
// once, when it ends.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/http/http.h"
#include "server/requests/api_error.h"
#include "server/requests/json.h"

namespace millrace {

class Metrics;
class AccessLog;
struct Adapter;

struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t completion_tokens = 0, reasoning_tokens = 0;
  int64_t accepted_drafts = 0, rejected_drafts = 0;  // draft tokens
  double queued_ms = 0, compute_ms = 0;              // compute: the call's share of the steps' time
  std::optional<double> joules;                      // the same of their energy, if the device counts it
};

class Call {
 public:
  using Clock = std::chrono::steady_clock;

  Call(std::shared_ptr<HttpExchange> exchange, std::string id, HttpHeaders headers, Metrics& metrics, AccessLog& log);
  ~Call();
  Call(const Call&) = delete;

  HttpExchange& exchange() { return *exchange_; }
  const HttpRequest& request() const { return exchange_->request(); }
  const std::string& id() const { return id_; }
  Clock::time_point arrived() const { return arrived_; }

  Protocol protocol = Protocol::OpenAi;  // the form of errors and of streams
  std::string route = "unknown";         // pattern of the path, for metrics
  std::string client;                    // name of the API key; empty: no key required
  Usage usage;                           // for the log

  // A call of the same client that answers to another connection.
  std::shared_ptr<Call> continued_on(std::shared_ptr<HttpConnection> connection) const;
  const std::shared_ptr<HttpExchange>& shared_exchange() const { return exchange_; }

  std::shared_ptr<const Adapter> adapter;  // the request names this one as its model; null: the model itself
  std::shared_ptr<void> model_lease;       // keeps the chosen model loaded until the call and its engine requests end

  const Json& body();  // parsed once; throws ApiError if it is not JSON
  void forget_body() { body_.reset(); }

  void reply(const Json& json);
  void reply(HttpReply reply);

  // Answers with an error; within a stream, as its last event.
  void fail(const ApiProblem& problem);

  // A stream of server-sent events; in Ollama's protocol, of lines.
  void begin_events();
  void event(const Json& data, const char* name = nullptr);
  void raw_event(std::string_view data);
  void relay(std::string_view events);  // whole events of another call's stream
  void flush();                         // sends all events since the last flush in one write
  void end_events();

  bool answered() const { return answered_; }
  bool streaming() const { return streaming_; }

 private:
  void ended(int status);

  std::shared_ptr<HttpExchange> exchange_;
  std::string id_;
  HttpHeaders headers_;  // sent with every answer
  Metrics& metrics_;
  AccessLog& log_;
  Clock::time_point arrived_ = Clock::now();
  bool answered_ = false, streaming_ = false;
  std::string pending_;
  std::optional<Json> body_;
};

}  // namespace millrace
