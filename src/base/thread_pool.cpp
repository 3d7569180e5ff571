#include "base/thread_pool.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr int kSpins = 20000;  // tens of microseconds: longer than the gap between two parallel regions of a step

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // pauses about as long as x86's pause; yield is a no-op on most cores
#endif
}

template <typename Condition>
void wait_until(const Condition& is_true) {
  for (int spins = 0; !is_true(); ++spins) {
    if (spins < kSpins) {
      relax();
    } else {
      std::this_thread::yield();  // a worker was descheduled: offer it this core
    }
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(std::max(1, threads)), shares_(static_cast<size_t>(threads_)) {
  for (int worker = 1; worker < threads_; ++worker) workers_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  calls_.fetch_add(1, std::memory_order_release);
  calls_.notify_all();
  for (auto& thread : workers_) thread.join();
}

// A worker that arrives after the last region closed still increments and decrements inside_, so the count carries
// over.
void ThreadPool::open(const FunctionRef<void(int)>& body) {
  body_ = &body;
  ++region_;
  came_.store(0, std::memory_order_relaxed);
  inside_.fetch_and(~kClosed, std::memory_order_release);
  calls_.fetch_add(1, std::memory_order_release);
  calls_.notify_all();
}

void ThreadPool::close() {
  inside_.fetch_or(kClosed, std::memory_order_relaxed);
  wait_until([&] { return inside_.load(std::memory_order_acquire) == kClosed; });
}

void ThreadPool::run(FunctionRef<void(int)> body) {
  if (threads_ == 1) return body(0);
  open(body);
  body(0);
  wait_until([&] { return came_.load(std::memory_order_relaxed) == threads_ - 1; });
  close();
}

void ThreadPool::enter(int worker, uint32_t& last_region) {
  const bool closed = (inside_.fetch_add(1, std::memory_order_acq_rel) & kClosed) != 0;
  if (!closed && region_ != last_region) {
    last_region = region_;
    came_.fetch_add(1, std::memory_order_relaxed);
    (*body_)(worker);
  }
  inside_.fetch_sub(1, std::memory_order_release);
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0, last_region = 0;
  for (;;) {
    for (int spins = 0; calls_.load(std::memory_order_acquire) == seen && spins < kSpins; ++spins) relax();
    calls_.wait(seen, std::memory_order_acquire);
    seen = calls_.load(std::memory_order_acquire);
    const bool stops = stop_;  // read before the errands, so that errands queued before the stop still run
    if (worker == threads_ - 1 && has_errands_.load(std::memory_order_acquire)) run_errands();
    if (stops) return;
    enter(worker, last_region);
  }
}

bool ThreadPool::errand(std::function<void()> task) {
  if (threads_ == 1) return false;
  {
    const std::lock_guard lock(mutex_);
    errands_.push_back(std::move(task));
    has_errands_.store(true, std::memory_order_release);
  }
  calls_.fetch_add(1, std::memory_order_release);
  calls_.notify_all();
  return true;
}

void ThreadPool::run_errands() {
  std::vector<std::function<void()>> errands;
  {
    const std::lock_guard lock(mutex_);
    errands.swap(errands_);
    has_errands_.store(false, std::memory_order_release);
  }
  for (const auto& errand : errands) errand();
  std::this_thread::yield();  // lets the thread that waits for the errand's result run now, on this core, rather than
                              // during a region
}

// A worker may have checked for errands just before the last one was queued and still enter this region. It checks
// again before its next one.
void ThreadPool::finish_errands() {
  for (int i = 0; i < 2; ++i) run([](int) {});
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
  const auto take_pieces = [&](int worker) {
    for (int i = 0; i < threads_; ++i) {
      Share& from = shares_[static_cast<size_t>((worker + i) % threads_)];
      for (;;) {
        const int64_t piece = from.next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= from.end) break;
        body(worker, piece * grain, std::min((piece + 1) * grain, count));
      }
    }
  };
  const FunctionRef<void(int)> taken(take_pieces);
  open(taken);
  take_pieces(0);
  close();
}

}  // namespace millrace
