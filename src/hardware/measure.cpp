#include <time.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "base/thread_pool.h"
#include "hardware/ceilings.h"
#include "hardware/clock.h"
#include "hardware/peaks/peak.h"
#include "hardware/read_rate.h"

namespace millrace {
namespace {

std::vector<Peak> peaks_for(IsaSet isa, PeakKind kind) {
  std::vector<Peak> feasible;
  const auto add = [&](std::span<const Peak> peaks) {
    for (const Peak& peak : peaks) {
      if (peak.kind == kind && isa.includes(peak.needs)) feasible.push_back(peak);
    }
  };
  add(kScalarPeaks);
#if defined(__aarch64__)
  add(kNeonPeaks), add(kDotprodPeaks), add(kI8mmPeaks);
#elif defined(__x86_64__)
  add(kSse4Peaks), add(kAvx2Peaks), add(kAvx512Peaks), add(kAmxPeaks);
#endif
  return feasible;
}

// CPU time, not wall time: time in which another process has the core must not count.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

double seconds_for(const Peak& peak, int64_t rounds) {
  const double start = thread_seconds();
  peak.run(rounds);
  return thread_seconds() - start;
}

// Billions of operations per second over all threads.
double rate_of(const Peak& peak, ThreadPool& pool) {
  constexpr int kRuns = 20;
  constexpr double kRunSeconds = 0.001;
  int64_t rounds = 256;
  while (seconds_for(peak, rounds) < kRunSeconds / 2) rounds *= 2;
  std::vector<double> best_seconds(static_cast<size_t>(pool.size()), 1e9);
  for (int run = 0; run < kRuns; ++run) {
    pool.run([&](int worker) {
      double& best = best_seconds[static_cast<size_t>(worker)];
      best = std::min(best, seconds_for(peak, rounds));
    });
  }
  double rate = 0;
  for (double seconds : best_seconds) rate += peak.ops_per_round * double(rounds) / seconds / 1e9;
  return rate;
}

double best_rate(IsaSet isa, PeakKind kind, ThreadPool& pool) {
  double best = 0;
  for (const Peak& peak : peaks_for(isa, kind)) best = std::max(best, rate_of(peak, pool));
  return best;
}

// The best of many small batches: one undisturbed batch is enough.
double region_us(ThreadPool& pool) {
  constexpr int kRegions = 20;
  double best_seconds = 1;
  const auto start = Clock::now();
  while (seconds_since(start) < 0.03) {
    const auto batch = Clock::now();
    for (int region = 0; region < kRegions; ++region) pool.run([](int) {});
    best_seconds = std::min(best_seconds, seconds_since(batch));
  }
  return best_seconds / kRegions * 1e6;
}

// Waits until the cores have raised their clocks. Returns the share of CPU time that the threads received: below 1 when
// other processes are busy.
double warm_up(ThreadPool& pool) {
  constexpr double kSeconds = 0.04;
  std::vector<double> got(static_cast<size_t>(pool.size()));
  const auto start = Clock::now();
  pool.run([&](int worker) {
    const double began = thread_seconds();
    while (seconds_since(start) < kSeconds) kScalarPeaks[0].run(1000);
    got[static_cast<size_t>(worker)] = thread_seconds() - began;
  });
  return std::accumulate(got.begin(), got.end(), 0.0) / (seconds_since(start) * pool.size());
}

}  // namespace

Ceilings measure_ceilings(const Hardware& hardware, ThreadPool& all) {
  Ceilings ceilings;
  ceilings.cpu_share = std::min(1.0, warm_up(all));
  ceilings.region_us = region_us(all);

  // More threads than cores raise neither compute nor bandwidth.
  std::optional<ThreadPool> fewer;
  const int at_once = hardware.cores * hardware.threads_per_core;
  ThreadPool& pool = all.size() > at_once ? fewer.emplace(at_once) : all;
  ceilings.f32_gflops = best_rate(hardware.isa, PeakKind::F32, pool);
  ceilings.f16_gflops = std::max(ceilings.f32_gflops, best_rate(hardware.isa, PeakKind::F16, pool));
  ceilings.bf16_gflops = std::max(ceilings.f32_gflops, best_rate(hardware.isa, PeakKind::Bf16, pool));
  ceilings.int8_gops = best_rate(hardware.isa, PeakKind::Int8, pool);

  ReadProbe probe(hardware, pool);
  for (int threads : thread_counts(pool.size())) {
    ceilings.read_by_threads.push_back({threads, probe.memory_gbs(threads)});
  }
  ceilings.read_gbs = ceilings.read_by_threads.back().gbs;
  ceilings.cache_gbs = std::max(ceilings.read_gbs, probe.cache_gbs());
  ceilings.measured = true;
  return ceilings;
}

bool plausible(const Ceilings& ceilings) {
  const auto within = [](double value, double low, double high) {
    return std::isfinite(value) && value >= low && value <= high;
  };
  constexpr double kMost = 1e7;  // 10 PFLOP/s or 10 PB/s: beyond any single machine
  for (double rate : {ceilings.read_gbs, ceilings.int8_gops, ceilings.f32_gflops}) {
    if (!within(rate, 0.01, kMost)) return false;
  }
  for (const ReadRate& rate : ceilings.read_by_threads) {
    if (rate.threads < 1 || !within(rate.gbs, 0.01, kMost)) return false;
    // More threads read at least as fast as one, unless something disturbed them.
    if (rate.gbs < 0.8 * ceilings.read_by_threads.front().gbs) return false;
  }
  return within(ceilings.cache_gbs, ceilings.read_gbs, kMost) &&
         within(ceilings.bf16_gflops, ceilings.f32_gflops, kMost) &&
         within(ceilings.f16_gflops, ceilings.f32_gflops, kMost) && within(ceilings.region_us, 0, 1e6) &&
         within(ceilings.cpu_share, 0, 1);
}

}  // namespace millrace
