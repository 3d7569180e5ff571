#include "base/thread_pool.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kSpins = 20000;  // tens of microseconds: longer than the gap between two regions of a step

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // waits about as long as x86's pause; yield is a no-op on most cores
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(std::max(1, threads)), shares_(static_cast<size_t>(threads_)) {
  for (int worker = 1; worker < threads_; ++worker) workers_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& thread : workers_) thread.join();
}

void ThreadPool::run(FunctionRef<void(int)> body) {
  if (threads_ == 1) return body(0);
  body_ = &body;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  body(0);
  for (int spins = 0; running_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();  // a worker lost its core: give it ours
    }
  }
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; generation_.load(std::memory_order_acquire) == seen && spins < kSpins; ++spins) relax();
    generation_.wait(seen, std::memory_order_acquire);
    ++seen;
    if (stop_) return;
    (*body_)(worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  share(count, grain, [&](int, int64_t begin, int64_t end) { body(begin, end); });
}

void ThreadPool::share(int64_t count, int64_t grain, FunctionRef<void(int, int64_t, int64_t)> body) {
  grain = std::max<int64_t>(1, grain);
  if (count <= grain || threads_ == 1) {
    if (count > 0) body(0, 0, count);
    return;
  }
  const int64_t pieces = (count + grain - 1) / grain;
  for (int64_t i = 0; i < threads_; ++i) {
    Share& own = shares_[static_cast<size_t>(i)];
    own.next.store(i * pieces / threads_, std::memory_order_relaxed);
    own.end = (i + 1) * pieces / threads_;
  }
  run([&](int worker) {
    for (int i = 0; i < threads_; ++i) {
      Share& from = shares_[static_cast<size_t>((worker + i) % threads_)];
      for (;;) {
        const int64_t piece = from.next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= from.end) break;
        body(worker, piece * grain, std::min((piece + 1) * grain, count));
      }
    }
  });
}

}  // namespace millrace
