// Fork-join over a fixed set of threads. A step makes hundreds of short parallel regions, so workers spin a little
// before they sleep, and a region costs about a microsecond.
#pragma once

#include <atomic>
#include <cstdint>
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

  // Splits [0, count) into pieces of `grain`. Each worker begins with neighbouring ones, so that what it fetches ahead is
  // what it needs next, and takes over from others when its own are done.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);
  void share(int64_t count, int64_t grain, FunctionRef<void(int worker, int64_t begin, int64_t end)> body);

 private:
  void work(int worker);

  struct alignas(64) Share {  // of one worker, in pieces
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  const int threads_;
  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
  const FunctionRef<void(int)>* body_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace millrace
