// Whether AMX cores are equally fast at all times: nanoseconds per step of four int8 products, with and without loads
// from the L1 cache, on 1 to 16 pinned threads, for several kinds of numbers. A parallel timing of plain adds separates
// a lower clock or a busy sibling from slower tiles.
//   g++ -O3 -std=c++20 -I src -mamx-tile -mamx-int8 -pthread bench/x86/tile_states.cpp
#include <immintrin.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "hardware/amx-inl.h"

namespace {

constexpr int kSteps = 400, kAdds = 4000;  // per turn
constexpr int64_t kBytes = 16 << 10;       // per operand
constexpr double kSeconds = 0.06;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void products() {
  _tile_dpbssd(0, 4, 6);
  _tile_dpbssd(1, 4, 7);
  _tile_dpbssd(2, 5, 6);
  _tile_dpbssd(3, 5, 7);
}

void loads(const char* w, const char* x) {
  _tile_loadd(6, w, 64);
  _tile_loadd(7, w + 1024, 64);
  _tile_loadd(4, x, 64);
  _tile_loadd(5, x + 1024, 64);
}

struct Times {
  double step = 0, add = 0;  // ns; step: median, add: mean
};

// Alternates steps and adds on the calling thread.
Times measure(bool zeros, bool with_loads) {
  auto* memory = static_cast<char*>(std::aligned_alloc(4096, 2 * kBytes));
  std::minstd_rand random;
  std::generate(memory, memory + 2 * kBytes, [&] { return static_cast<char>(zeros ? 0 : random() >> 8); });
  const char *w = memory, *x = memory + kBytes;
  load_tile_config();
  loads(w, x);
  std::vector<double> steps;
  double adds = 0;
  for (const double end = now() + kSeconds; now() < end;) {
    const double begin = now();
    for (int64_t i = 0, at = 0; i < kSteps; ++i, at = (at + 2048) % kBytes) {
      if (with_loads) loads(w + at, x + at);
      products();
    }
    const double between = now();
    uint64_t sum = 0;
    for (int i = 0; i < kAdds; ++i) asm volatile("add $1, %0" : "+r"(sum));
    steps.push_back((between - begin) / kSteps * 1e9);
    adds += (now() - between) / kAdds * 1e9;
  }
  std::free(memory);
  std::sort(steps.begin(), steps.end());
  return {steps[steps.size() / 2], adds / static_cast<double>(steps.size())};
}

void together(int threads, bool zeros, bool with_loads) {
  std::vector<Times> times(static_cast<size_t>(threads));
  std::vector<std::thread> all;
  std::atomic<int> ready{0};
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<size_t>(i), &one);
      ::sched_setaffinity(0, sizeof one, &one);
      for (++ready; ready < threads;) {
      }
      times[static_cast<size_t>(i)] = measure(zeros, with_loads);
    });
  }
  for (auto& thread : all) thread.join();
  std::sort(times.begin(), times.end(), [](const Times& a, const Times& b) { return a.step < b.step; });
  const Times &fastest = times.front(), &middle = times[times.size() / 2], &slowest = times.back();
  std::printf(
      "%-8s %-7s %2d threads: a step on the fastest core %6.1f, the median %6.1f, the slowest %6.1f ns; an add %.2f, "
      "%.2f, %.2f ns\n",
      with_loads ? "loads" : "products", zeros ? "zeros" : "numbers", threads, fastest.step, middle.step, slowest.step,
      fastest.add, middle.add, slowest.add);
}

}  // namespace

int main() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return std::puts("no AMX here"), 1;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (const bool with_loads : {false, true}) {
    for (const bool zeros : {true, false}) {
      for (int threads = 1; threads <= std::min(cores, 16); threads *= 2) together(threads, zeros, with_loads);
    }
  }
}
