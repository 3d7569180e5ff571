// The engine as a server uses it: one thread owns it, any thread may submit, cancel and look.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "engine/engine.h"
#include "engine/engine_stats.h"

namespace millrace {

struct ServiceOptions {
  EngineOptions engine;
  size_t most_waiting = 256;  // requests that wait; one more is refused as Busy
};

class Service {
 public:
  // Called on the engine's thread for every emission of a request, the last being the one where the last of its choices
  // finishes. All streams wait while it runs: it copies what it needs into a queue of the caller's and returns. It must
  // not block, throw, tokenize or write to a socket; it may call cancel(), which only leaves a note. Calls for one
  // request come one after the other; after the last one, or where submit() throws, the function is destroyed.
  using OnEmission = std::function<void(const Emission&)>;

  Service(Runner& runner, const ServiceOptions& options);  // the runner is loaded, and nobody else uses it meanwhile
  ~Service();                                              // cancels what is left: every stream still gets its end
  Service(const Service&) = delete;

  // Throws Usage where the request can never run (its message for a prompt that is too long starts with "This model's
  // maximum context length is"), Busy where too many wait or where the service drains: try again later. The first
  // emission may come before submit() returns.
  RequestId submit(Request request, OnEmission on_emission);

  // Ends one choice, or all of a request: before the next step its pages are free, and OnEmission gets Cancelled for
  // each choice that had not finished. An unknown id or choice, or one that has finished, is ignored.
  static constexpr int32_t kAllChoices = -1;
  void cancel(RequestId id, int32_t choice = kAllChoices);

  // For OnEmission: a thread that computes, and is not the engine's, does this before it goes on. False: there is none
  // to spare, or no need, since cores are free; any other thread may do it then. The task must not throw.
  bool errand(std::function<void()> task);

  EngineStats stats() const;    // as of the last step
  std::string problem() const;  // why no request will ever succeed again: its device is lost; empty: all is well

  // Takes no more requests and waits until all have ended; what is left after `patience` is cancelled. True: nothing
  // was.
  bool drain(std::chrono::milliseconds patience);
  bool draining() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace millrace
