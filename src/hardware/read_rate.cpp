#include "hardware/read_rate.h"

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"
#include "hardware/clock.h"
#include "hardware/detect.h"

namespace millrace {
namespace {

constexpr size_t kMegabyte = 1 << 20;
constexpr size_t kLine = 64;
constexpr size_t kWindowPerThread = 32 * kMegabyte;  // one or two milliseconds: much longer than starting the threads
constexpr double kSecondsPerFigure = 0.05;

// Several times the last-level cache, so that a pass finds no data of the previous one, but small enough to allocate
// quickly. A virtual machine may understate that cache.
size_t buffer_bytes(const Hardware& hardware) {
  const auto wanted = std::clamp<int64_t>(4 * hardware.l3_bytes, 256 * kMegabyte, 1024 * kMegabyte);
  const auto affordable = std::max<int64_t>(available_memory() / 4, 16 * kMegabyte);
  return static_cast<size_t>(std::min(wanted, affordable)) / kMegabyte * kMegabyte;
}

// More than a core's private caches, much less than the last level, which other virtual machines may share.
size_t cache_bytes(const Hardware& hardware) {
  return static_cast<size_t>(std::min(hardware.l3_bytes / 2, 4 * hardware.l2_bytes * hardware.threads));
}

using Words = uint64_t __attribute__((vector_size(16)));

// Reads a slice as several concurrent streams: the best number for the prefetchers differs between machines.
template <int streams>
void read(const std::byte* data, size_t bytes) {
  const size_t part = bytes / streams / kLine * kLine;
  Words sums[4] = {};
  for (size_t at = 0; at < part; at += kLine) {
    for (int stream = 0; stream < streams; ++stream) {
      const auto* line = reinterpret_cast<const Words*>(data + static_cast<size_t>(stream) * part + at);
      sums[0] ^= line[0], sums[1] ^= line[1], sums[2] ^= line[2], sums[3] ^= line[3];
    }
  }
  Words all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  asm volatile("" : "+m"(all));  // keeps the compiler from dropping the reads
}

}  // namespace

ReadProbe::ReadProbe(const Hardware& hardware, ThreadPool& pool)
    : pool_(pool),
      bytes_(buffer_bytes(hardware)),
      cached_bytes_(std::min(bytes_, cache_bytes(hardware))),
      arena_("measuring the memory", bytes_),
      data_(arena_.take(bytes_)) {
  const size_t whole = window(pool.size()), slice = whole / static_cast<size_t>(pool.size());
  for (std::byte* first = data_; first + whole <= data_ + bytes_; first += whole) {
    pool.run([&](int worker) { std::memset(first + static_cast<size_t>(worker) * slice, 1, slice); });
  }
}

size_t ReadProbe::window(int threads) const {
  return std::min(bytes_, kWindowPerThread * static_cast<size_t>(threads));
}

// Reads the buffer window by window, repeatedly, and returns the best window. The first pass does not count: it may hit
// cache lines written during setup.
double ReadProbe::best_gbs(int threads, size_t window, size_t windows) {
  const size_t slice = window / static_cast<size_t>(threads) / kLine * kLine;
  const auto timed = [&](const std::byte* first, void (*read_slice)(const std::byte*, size_t)) {
    const auto start = Clock::now();
    pool_.run([&](int worker) {
      if (worker < threads) read_slice(first + static_cast<size_t>(worker) * slice, slice);
    });
    return double(slice) * threads / seconds_since(start) / 1e9;
  };
  double best = 0;
  const auto start = Clock::now();
  for (size_t turn = 0; turn < 3 * windows + 1 || seconds_since(start) < kSecondsPerFigure; ++turn) {
    // Reading the same window twice in a row would hit the cache.
    const std::byte* first = data_ + turn % windows * window;
    const double gbs = timed(first, turn % 2 == 0 ? read<1> : read<4>);
    if (turn >= windows) best = std::max(best, gbs);
  }
  return best;
}

double ReadProbe::memory_gbs(int threads) { return best_gbs(threads, window(threads), bytes_ / window(threads)); }

double ReadProbe::cache_gbs() { return best_gbs(pool_.size(), cached_bytes_, 1); }

std::vector<int> thread_counts(int threads) {
  std::vector<int> counts;
  for (int count = 1; count < threads; count = count < 8 ? count + 1 : count * 2) counts.push_back(count);
  counts.push_back(threads);
  return counts;
}

}  // namespace millrace
