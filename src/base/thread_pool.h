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

  // Splits [0, count) into pieces of `grain` that workers take as they come free.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  void work(int worker);

  const int threads_;
  std::vector<std::thread> workers_;
  const FunctionRef<void(int)>* body_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace millrace
