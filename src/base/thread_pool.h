// Fork-join over a fixed set of threads. A step makes hundreds of short parallel regions, so workers spin a little
// before they sleep, and a region costs about a microsecond.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace millrace {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int size() const { return threads_; }

  // Runs body(worker) once on every worker, the caller being worker 0, and returns when all are done. Not reentrant;
  // one caller at a time. The body must not throw.
  void run(FunctionRef<void(int worker)> body);

  // Splits [0, count) into pieces of `grain`. Each worker begins with neighbouring ones, so that what it fetches ahead
  // is what it needs next, and takes over from others when its own are done. A worker that does not come, because the
  // system gave its core to somebody else or because it is on an errand, is not waited for.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);
  void share(int64_t count, int64_t grain, FunctionRef<void(int worker, int64_t begin, int64_t end)> body);

  // Sends a worker on an errand, between two regions: where all cores compute, something small that must be done beside
  // is done like this by a thread that has a core and is not missed, while another thread would interrupt one that is.
  // False: there is no worker but the caller. Errands come in order, must not throw and must not use the pool.
  bool errand(std::function<void()> task);
  void finish_errands();

 private:
  static constexpr uint32_t kClosed = 1u << 31;

  void open(const FunctionRef<void(int)>& body);
  void close();
  void enter(int worker, uint32_t& last_region);
  void run_errands();
  void work(int worker);

  struct alignas(64) Share {  // of one worker, in pieces
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  const int threads_;
  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
  const FunctionRef<void(int)>* body_ = nullptr;
  uint32_t region_ = 0;                                // number of the one that is open, or was last
  alignas(64) std::atomic<uint32_t> calls_{0};         // counts what workers should look up for
  alignas(64) std::atomic<uint32_t> inside_{kClosed};  // workers in the region, and whether it is closed
  std::atomic<int> came_{0};                           // workers that were in it
  std::atomic<bool> stop_{false}, has_errands_{false};
  std::mutex mutex_;  // of what follows
  std::vector<std::function<void()>> errands_;
};

}  // namespace millrace
