// Metrics for Prometheus. Names are vLLM's where they mean the same, so that its dashboards work.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_stats.h"

namespace millrace {

class Metrics {
 public:
  explicit Metrics(const std::string& model);
  ~Metrics();
  Metrics(const Metrics&) = delete;

  void count_http(const std::string& route, int status, double seconds);
  void observe_first_token(double seconds);  // since the request's arrival
  void observe_next_token(double seconds);   // since the previous token

  struct Choice {  // a finished choice
    int prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
    double seconds = 0, queued_seconds = 0, first_token_seconds = 0;
    const char* reason = "stop";
  };
  void observe_choice(const Choice& choice);

  // A cascade has decided. `given_up`: tokens of the small model's answer that the client does not get.
  void count_cascade(const std::string& answered_by, int64_t given_up);

  // Adds the totals of an engine that ends to those of later calls of text().
  void keep_totals(const EngineStats& engine);

  // The text of /metrics. `engine` is null until the model is loaded.
  std::string text(const EngineStats* engine, size_t connections);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

// Adds up counters and gauges of two engines; the streams are left out.
EngineStats& operator+=(EngineStats& sum, const EngineStats& one);

}  // namespace millrace
