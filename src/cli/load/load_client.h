// Sends the requests of a plan and records the arrival times of their answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/load/load_plan.h"

namespace millrace {

struct LoadedRequest {
  double begin = 0;  // seconds since the start of the run
  double end = 0;
  std::vector<double> pieces;  // arrival times of the answer's pieces, from the first with content
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t tokens = 0;   // answer tokens as the server counts them, else the number of pieces
  std::string problem;  // empty: a complete answer
};

// Parses one server-sent event stream, independent of how its bytes are split.
class AnswerStream {
 public:
  explicit AnswerStream(LoadedRequest& request) : request_(request) {}
  void feed(std::string_view bytes, double now);
  void end();                          // fills in the request's results
  bool done() const { return done_; }  // the stream's last event has arrived

 private:
  struct Arrival {
    size_t end;  // offset in the stream
    double time;
  };

  void event(std::string_view data, double time);
  LoadedRequest& request_;
  std::string bytes_;
  std::vector<Arrival> arrivals_;
  bool done_ = false;
};

struct LoadProgress {
  double elapsed = 0;
  int running = 0, finished = 0, failed = 0;
};

// Ctrl-C ends it early and keeps the results so far. Throws Network if the server is unreachable.
std::vector<LoadedRequest> run_load(const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress);

// The address of an API from that of its server, with or without http:// and /v1.
std::string base_url(std::string url);

// The first model that the server lists. Throws Network.
std::string first_model(const LoadPlan& plan);

}  // namespace millrace
