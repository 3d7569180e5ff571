// The engine for a server: it runs on a thread of its own, and any thread may submit, cancel and read statistics.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>

#include "engine/engine.h"
#include "engine/engine_stats.h"

namespace millrace {

struct ServiceOptions {
  EngineOptions engine;
  size_t most_waiting = 256;  // queued requests, at most; further ones are refused as Busy
  ParkLimits park;            // for the state of parked sessions that leaves the device
};

class Service {
 public:
  // Called on the engine's thread for every emission of a request; the last call is the one with which the last choice
  // finishes. All streams wait while it runs: it should copy the data into a queue of the caller and return. It must
  // not block, throw, tokenize or write to a socket. It may call cancel(), which only queues the cancellation. Calls
  // for one request never overlap. After the last one, or if submit() throws, the function is destroyed.
  using OnEmission = std::function<void(const Emission&)>;

  Service(Runner& runner, const ServiceOptions& options);  // the runner is loaded and used by nothing else
  ~Service();  // cancels all requests; every stream still gets its last emission
  Service(const Service&) = delete;

  // Throws Usage if the request can never run (the message for a prompt that is too long starts with "This model's
  // maximum context length is"), and Busy if too many requests wait or the service is draining. The first emission may
  // come before submit() returns.
  RequestId submit(Request request, OnEmission on_emission);

  // Ends one choice or all of a request. Its pages are freed before the next step, and OnEmission gets Cancelled for
  // each unfinished choice. An unknown or finished id or choice is ignored.
  static constexpr int32_t kAllChoices = -1;
  void cancel(RequestId id, int32_t choice = kAllChoices);

  // For OnEmission: runs the task on a computing thread other than the engine's. False: no such thread is available, or
  // cores are idle, so the caller should use another thread. The task must not throw.
  bool errand(std::function<void()> task);

  // Loads an adapter under a name, or replaces the one of that name, between two steps. Reads the file on the calling
  // thread. Throws.
  void load_adapter(const std::string& name, const std::filesystem::path& path);
  bool unload_adapter(const std::string& name);  // false: unknown. Running requests keep it.
  std::shared_ptr<const Adapter> find_adapter(std::string_view name) const;  // null: unknown
  std::vector<std::shared_ptr<const Adapter>> adapters() const;

  // A session whose client runs a tool (Engine::park). `before`: the tokens with which it was parked the last time; its
  // state from then is given up. Empty `tokens`: the session has ended. Does not wait.
  void park(std::shared_ptr<const Adapter> adapter, std::vector<int32_t> tokens, std::vector<int32_t> before);
  // Where the state of sessions is. Waits for the end of a step.
  struct ParkedTokens {
    std::shared_ptr<const Adapter> adapter;
    std::vector<int32_t> tokens;
  };
  std::vector<ParkedStates::Found> parked_places(std::span<const ParkedTokens> sessions) const;

  EngineStats stats() const;    // as of the last step
  std::string problem() const;  // the device is lost and no request can succeed any more; empty: none

  // Accepts no more requests and waits until all have ended. Cancels those left after `patience`; true: none were.
  bool drain(std::chrono::milliseconds patience);
  bool draining() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace millrace
