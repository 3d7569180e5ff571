// Owns the models of a server. A model is loaded when the first request wants it; if memory is short, the least
// recently used model without requests is unloaded. Requests wait for their model within bounds of number and time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/model_table.h"

namespace millrace {

// A loading model calls this as soon as it knows its size: the bytes that it needs and the bytes that are free now.
// The call returns when it may take the bytes; true: another model was unloaded for it, so more is free than before.
// Throws if the model must not be loaded.
using MakeRoom = std::function<bool(int64_t bytes, int64_t available)>;

class PooledModel {
 public:
  virtual ~PooledModel() = default;
  virtual void load(const MakeRoom& make_room) = 0;  // on the pool's thread, once; throws if it fails
};

class ModelPool {
 public:
  struct Member {
    std::vector<std::string> names;
    std::function<std::shared_ptr<PooledModel>()> make;  // an object to load; one for each load
    std::string problem = {};                            // already known to fail: shown until a load succeeds
  };
  struct Options {
    int64_t memory = 0;                         // bytes for all models together; 0: what is free
    std::chrono::milliseconds patience{60000};  // a request waits for its model this long
    size_t most_waiting = 256;                  // requests that wait, at most
  };
  struct Event {
    enum Kind { Loaded, Failed, Unloading } kind;  // Unloading: peek() still returns the model
    size_t model = 0;
    double seconds = 0;  // that the load took
    std::string problem = {};
  };
  using OnEvent = std::function<void(const Event&)>;  // called on the pool's thread

  enum class Refusal { Loading, Busy, Failed, Closed };
  using Lease = std::shared_ptr<PooledModel>;  // the model is not unloaded while a copy exists
  using OnReady = std::function<void(Lease)>;
  using OnRefused = std::function<void(Refusal, const std::string& problem)>;

  ModelPool(std::vector<Member> members, const Options& options, OnEvent on_event);
  ~ModelPool();  // closes and joins
  ModelPool(const ModelPool&) = delete;

  size_t size() const { return members_.size(); }
  const std::vector<std::string>& names(size_t model) const { return members_[model].names; }
  std::optional<size_t> find(std::string_view name) const;

  // Calls one of the two, immediately or later on a thread of the pool; it should return quickly and must not throw.
  void acquire(size_t model, OnReady ready, OnRefused refused);
  void preload(size_t model);  // loads it without a request

  ModelTable::Row status(size_t model) const;
  std::shared_ptr<PooledModel> peek(size_t model) const;  // in any state, without a lease: it may be unloaded meanwhile
  size_t last_used() const;                               // the loaded model that was used last; 0 if none is loaded

  // Refuses all requests from now on, those that wait and a load that waits for memory.
  void close();
  bool closed() const;
  void join();  // after close(): waits for a load that is under way; afterwards no function is called any more

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    size_t model;
    Clock::time_point until;
    OnReady ready;
    OnRefused refused;
  };
  struct Shared {  // outlives the pool if a lease does
    explicit Shared(size_t models) : table(models) {}
    std::mutex mutex;
    std::condition_variable changed;
    ModelTable table;
  };
  struct Slot {
    std::shared_ptr<PooledModel> model;
    bool spent = false;    // a load has used the object
    bool preload = false;  // wanted without a request
    bool asked = false;  // a request came since the last load began: load even if it has gone, since it may come again
  };

  Lease lease(size_t model);                      // the lock is held and the table has counted it
  std::vector<std::function<void()>> hand_out();  // leases for waiting requests; the lock is held
  std::vector<std::function<void()>> refuse(const std::function<bool(const Waiting&)>& which, Refusal why,
                                            const std::string& problem);  // the lock is held
  std::optional<size_t> next_to_load() const;
  bool wanted(size_t model) const;
  void load(size_t model, std::unique_lock<std::mutex>& lock);
  bool make_room(size_t model, int64_t bytes, int64_t available);
  void unload(size_t model, std::unique_lock<std::mutex>& lock);
  void run_loads();
  void watch_deadlines();

  std::vector<Member> members_;
  Options options_;
  OnEvent on_event_;
  std::shared_ptr<Shared> shared_;
  std::vector<Slot> slots_;
  std::list<Waiting> waiting_;  // in order of arrival
  bool closed_ = false;
  std::thread loader_, watch_;
};

}  // namespace millrace
