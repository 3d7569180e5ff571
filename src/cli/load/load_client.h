// Sends the requests of a plan and notes when what came back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/load/load_plan.h"

namespace millrace {

struct LoadedRequest {
  double begin = 0;  // seconds from the start of the run
  double end = 0;
  std::vector<double> pieces;  // when each piece of the answer came, from the first that says something on
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t tokens = 0;   // of the answer, as the server counts them, else one for each piece
  std::string problem;  // empty: a whole answer
};

// One server-sent stream, however its bytes are cut.
class AnswerStream {
 public:
  explicit AnswerStream(LoadedRequest& request) : request_(request) {}
  void feed(std::string_view bytes, double now);
  void end();                          // fills the request with what came
  bool done() const { return done_; }  // it had the last event of a whole stream

 private:
  struct Arrival {
    size_t end;  // of the bytes so far
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

// Ctrl-C ends it early, with what there is. Throws Network where the server cannot be reached at all.
std::vector<LoadedRequest> run_load(const LoadPlan& plan, const std::function<void(const LoadProgress&)>& progress);

// The first model that the server names. Throws Network.
std::string first_model(const LoadPlan& plan);

}  // namespace millrace
