// One API call: its HTTP exchange, its client, and its answer, whole or as a stream of events. It is counted and logged
// once, when it ends.
#pragma once

#include <atomic>
#include <chrono>
#include <ctime>
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
struct Cascade;

struct Usage;

struct SessionLedger {  // sums over the requests of a session
  std::string id;
  int64_t requests = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  double queued_ms = 0, compute_ms = 0;
  std::optional<double> joules;

  void add(const Usage& usage);
};

struct CascadeUsage {  // of an answer of two models (server/cascade.h)
  std::string answered_by;
  std::optional<double> mean_logprob;  // of the small model's answer; nullopt: it has no tokens
  double threshold = 0;
  int64_t small_prompt_tokens = 0, small_completion_tokens = 0;
};

struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t completion_tokens = 0, reasoning_tokens = 0;
  int64_t accepted_drafts = 0, rejected_drafts = 0;  // draft tokens
  double queued_ms = 0, compute_ms = 0;              // compute: the call's share of the steps' time
  std::optional<double> joules;                      // the same of their energy, if the device counts it
  std::optional<SessionLedger> session;              // this request included, if it belongs to one
  std::optional<CascadeUsage> cascade;               // once it is decided which model answers
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
  int64_t created() const { return created_; }  // the same as a Unix time

  Protocol protocol = Protocol::OpenAi;  // the form of errors and of streams
  std::string route = "unknown";         // pattern of the path, for metrics
  std::string client;                    // name of the API key; empty: no key required
  Usage usage;                           // for the log

  // A call of the same client that answers to another connection.
  std::shared_ptr<Call> continued_on(std::shared_ptr<HttpConnection> connection) const;

  std::shared_ptr<void> model_lease;       // keeps the chosen model loaded until the call and its engine requests end
  std::shared_ptr<const Adapter> adapter;  // the request names this one as its model; null: the model itself
  const Cascade* cascade = nullptr;        // the request chose it; null: one model

  const Json& body();  // parsed once; throws ApiError if it is not JSON
  void forget_body() { body_.reset(); }
  // The body's "model", or "name" in Ollama's older requests; for requests without a body the query's model=NAME.
  // Empty: none.
  std::string asked_model();

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

  void drop() { answered_ = true; }  // ends without an answer, a count or a line in the log

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
  int64_t created_ = std::time(nullptr);
  bool answered_ = false;
  std::atomic<bool> streaming_ = false;  // the engine's thread reads it
  std::string pending_;
  std::optional<Json> body_;
};

}  // namespace millrace
