// How fast the pool's threads can stream through memory, and through the last-level cache.
#pragma once

#include <cstddef>
#include <vector>

#include "base/thread_pool.h"
#include "hardware/hardware.h"
#include "tensor/arena.h"

namespace millrace {

class ReadProbe {
 public:
  // Allocates and touches a buffer larger than the last-level cache, each part by the thread that reads it when all do.
  ReadProbe(const Hardware& hardware, ThreadPool& pool);

  double memory_gbs(int threads);  // the first `threads` workers of the pool, together
  double cache_gbs();              // all of them, over data that the last-level cache holds

 private:
  size_t window(int threads) const;
  double best_gbs(int threads, size_t window, size_t windows);

  ThreadPool& pool_;
  size_t bytes_, cached_bytes_;
  Arena arena_;
  std::byte* data_;
};

// The points at which the bandwidth is measured: each count up to 8, then 16, 32, ... and all.
std::vector<int> thread_counts(int threads);

}  // namespace millrace
