// The plan of a load run: number, times and content of requests.
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

struct LoadPlan {
  std::string url;        // of the server, with or without /v1
  std::string model;      // empty: the first that the server lists
  std::string key;        // empty: none
  double rate = 0;        // requests per second, Poisson arrivals; 0: a fixed number of `streams`
  int streams = 8;        // concurrent requests if there is no rate
  double duration = 30;   // seconds in which requests start
  int requests = 0;       // maximum number; 0: no limit
  int words = 256;        // per prompt, drawn at random
  int prefix_words = 0;   // common prefix of all prompts
  int tokens = 64;        // per answer
  bool exact = true;      // answers have exactly `tokens` tokens (ignore_eos)
  double patience = 300;  // timeout of one answer in seconds
  uint64_t seed = 0;
};

// Start time of request `i` in seconds, ascending; 0 if there is no rate.
class Arrivals {
 public:
  explicit Arrivals(const LoadPlan& plan) : rate_(plan.rate), seed_(plan.seed) {}
  double next();

 private:
  double rate_;
  uint64_t seed_, drawn_ = 0;
  double at_ = 0;
};

// The prompt of request `i`: common English words.
std::string load_prompt(const LoadPlan& plan, uint64_t i);

// The body of request `i`.
std::string load_request(const LoadPlan& plan, uint64_t i);

}  // namespace millrace
