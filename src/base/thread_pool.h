// Fork-join over a fixed set of threads. A step has hundreds of short parallel regions, so workers spin before they
// sleep; a region costs about a microsecond.
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

  // Lock for callers that share the pool, since regions have one caller at a time. An engine holds it for one step,
  // loading for one matrix.
  [[nodiscard]] std::unique_lock<std::mutex> turn() { return std::unique_lock(turn_); }

  // Runs body(worker) once on every worker and returns when all are done; the caller is worker 0. Not reentrant; one
  // caller at a time. The body must not throw.
  void run(FunctionRef<void(int worker)> body);

  // Splits [0, count) into pieces of `grain`. Each worker starts with adjacent pieces, which suits the hardware
  // prefetcher, and steals from others when its own are done. The call does not wait for a worker that is descheduled
  // or on an errand.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);
  void share(int64_t count, int64_t grain, FunctionRef<void(int worker, int64_t begin, int64_t end)> body);

  // Runs `task` on a worker between two regions. Where every core computes, an extra thread would preempt a worker
  // inside a region and stall the step; a worker on an errand is skipped by parallel_for. Returns false if the caller
  // is the only worker. Errands run in order, must not throw and must not use the pool.
  bool errand(std::function<void()> task);
  void finish_errands();

 private:
  static constexpr uint32_t kClosed = 1u << 31;

  void open(const FunctionRef<void(int)>& body);
  void close();
  void enter(int worker, uint32_t& last_region);
  void run_errands();
  void work(int worker);

  struct alignas(64) Share {  // one worker's range, in pieces
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  const int threads_;
  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
  const FunctionRef<void(int)>* body_ = nullptr;
  uint32_t region_ = 0;                                // number of the open or most recent region
  alignas(64) std::atomic<uint32_t> calls_{0};         // incremented whenever sleeping workers must wake and look
  alignas(64) std::atomic<uint32_t> inside_{kClosed};  // workers in the region, plus a closed flag
  std::atomic<int> came_{0};                           // workers that entered it
  std::atomic<bool> stop_{false}, has_errands_{false};
  std::mutex turn_;
  std::mutex mutex_;  // guards the members below
  std::vector<std::function<void()>> errands_;
};

}  // namespace millrace
