// What a load run asks of a server: how many requests come when, and what they say.
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

struct LoadPlan {
  std::string url;        // of the server, with or without /v1
  std::string model;      // empty: the first that the server names
  std::string key;        // empty: none
  double rate = 0;        // requests per second, arriving at random (Poisson); 0: `streams` at a time
  int streams = 8;        // where there is no rate: so many at once, each followed by the next
  double duration = 30;   // seconds in which requests begin
  int requests = 0;       // no more than so many; 0: as many as begin in time
  int words = 256;        // of each prompt, drawn afresh
  int prefix_words = 0;   // of a text that all prompts begin with
  int tokens = 64;        // of each answer
  bool exact = true;      // answers have exactly so many tokens (ignore_eos), as benchmarks want it
  double patience = 300;  // seconds for one answer
  uint64_t seed = 0;
};

// Seconds from the beginning at which request `i` comes, and 0 where there is no rate. Grows with i.
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

// The body of a request.
std::string load_request(const LoadPlan& plan, uint64_t i);

}  // namespace millrace
