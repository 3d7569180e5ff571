// Sends the requests of a plan and notes when what came back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/load/load_plan.h"

namespace millrace {

struct LoadedRequest {
  double begin = 0;  // seconds from the start of the run
  double end = 0;
  std::vector<double> pieces;  // when each piece of the answer came
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t tokens = 0;   // of the answer, as the server counts them, else one for each piece
  std::string problem;  // empty: a whole answer
};

// One server-sent stream, fed as it comes.
class AnswerStream {
 public:
  explicit AnswerStream(LoadedRequest& request) : request_(request) {}
  void feed(std::string_view bytes, double now);
  bool done() const { return done_; }

 private:
  void event(std::string_view data, double now);
  LoadedRequest& request_;
  std::string line_;
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
