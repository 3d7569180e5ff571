// Streaming read bandwidth of the pool's threads, from memory and from the last-level cache.
#pragma once

#include <cstddef>
#include <vector>

#include "base/thread_pool.h"
#include "hardware/hardware.h"
#include "tensor/arena.h"

namespace millrace {

class ReadProbe {
 public:
  // Allocates a buffer larger than the last-level cache. Each thread touches its own part first, for NUMA placement.
  ReadProbe(const Hardware& hardware, ThreadPool& pool);

  double memory_gbs(int threads);  // of the first `threads` workers together
  double cache_gbs();              // of all workers, over data in the last-level cache

 private:
  size_t window(int threads) const;
  double best_gbs(int threads, size_t window, size_t windows);

  ThreadPool& pool_;
  size_t bytes_, cached_bytes_;
  Arena arena_;
  std::byte* data_;
};

// Thread counts to measure at: 1 to 8, then 16, 32, ... and all.
std::vector<int> thread_counts(int threads);

}  // namespace millrace
