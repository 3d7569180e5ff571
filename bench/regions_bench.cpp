// The cost of a parallel region, by threads and by how long the caller worked alone before it: sleeping workers take
// longer to start. regions_bench
#include <benchmark/benchmark.h>

#include <chrono>

#include "base/thread_pool.h"
#include "hardware/detect.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

void region(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const auto alone = std::chrono::microseconds(state.range(1));
  for (auto _ : state) {
    const auto start = Clock::now();
    while (Clock::now() - start < alone) benchmark::ClobberMemory();
    const auto begin = Clock::now();
    pool.run([](int) {});
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
  }
}

void register_all() {
  const int most = detect_cpu().threads;
  auto* test = benchmark::RegisterBenchmark("region/threads/us_alone", region);
  for (int threads = 2; threads <= most; threads *= 2) {
    for (const int alone : {0, 2, 10, 50, 1000}) test->Args({threads, alone});
  }
  test->UseManualTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  millrace::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
