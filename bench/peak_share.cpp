// The share of the int8 peak that a kernel reaches on a host whose peak fluctuates because others share it: times both
// in short alternating turns on the same threads.
//   peak_share KERNEL THREADS FORMAT:NxK:M...
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>

#include "base/error.h"
#include "base/thread_pool.h"
#include "dataflow/cold_inputs.h"
#include "hardware/peaks/peak.h"
#include "hardware/this_machine.h"
#include "linear_problem.h"

namespace millrace {
namespace {

// The peak of the instruction in the kernel's name.
const Peak& peak_of(std::string_view kernel) {
  const auto has = [&](std::string_view part) { return kernel.find(part) != std::string_view::npos; };
#if defined(__aarch64__)
  return has("dotprod") ? kDotprodPeaks[0] : kI8mmPeaks[0];
#else
  if (has("avx2")) return kAvx2Peaks[0];
  return has("vnni") ? kAvx512Peaks[1] : kAmxPeaks[0];
#endif
}

constexpr int kTurns = 60;

template <class Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Operations per second of all threads with products only; `rounds` take about half a millisecond.
double peak_rate(const Peak& peak, ThreadPool& pool, int64_t rounds) {
  const double seconds = seconds_of([&] { pool.run([&](int) { peak.run(rounds); }); });
  return peak.ops_per_round * static_cast<double>(rounds * pool.size()) / seconds;
}

void compare(const LinearKernel& kernel, const char* text, const Hardware& hardware, ThreadPool& pool) {
  LinearProblem problem = read_problem(text);
  const int64_t n = problem.n, k = problem.k, m = problem.m;
  const auto& layout = find_layout(problem, kernel, hardware);
  const auto device = host_device(hardware);
  ColdWeights weights(problem.format, n, k, layout, *device, pool);
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * k)), y(static_cast<size_t>(m * n));
  std::ranges::generate(x, [&] { return normal(random); });
  Arena workspace("workspace", Arena::padded(kernel.workspace_bytes(problem, hardware) + 64));
  std::byte* scratch = workspace.take(workspace.capacity());
  LinearArgs args;
  args.x = {DType::F32, m, k, k, reinterpret_cast<std::byte*>(x.data())};
  args.y = {DType::F32, m, n, n, reinterpret_cast<std::byte*>(y.data())};

  const Peak& products = peak_of(kernel.name());
  int64_t rounds = 256;
  while (seconds_of([&] { products.run(rounds); }) < 2.5e-4) rounds *= 2;
  std::vector<double> peaks, rates, shares;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double before = peak_rate(products, pool, rounds);
    args.weights = weights.next();
    const double seconds = seconds_of([&] { kernel.run(args, {&pool, scratch, {}, &hardware}); });
    const double peak = (before + peak_rate(products, pool, rounds)) / 2,
                 rate = 2.0 * double(n * k) * double(m) / seconds;
    peaks.push_back(peak);
    rates.push_back(rate);
    shares.push_back(rate / peak);
  }
  fmt::print(
      "{:24} {:2} threads  products alone {:7.0f} GOP/s ({:.0f} .. {:.0f})  {} {:7.0f} GOP/s  {:3.0f} % (median of "
      "{})\n",
      text, pool.size(), median(peaks) / 1e9, *std::ranges::min_element(peaks) / 1e9,
      *std::ranges::max_element(peaks) / 1e9, kernel.name(), median(rates) / 1e9, 100 * median(shares), kTurns);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  try {
    if (argc < 4) fail(ErrorKind::Usage, "peak_share KERNEL THREADS FORMAT:NxK:M ...");
    const Hardware hardware = this_machine(std::atoi(argv[2]));
    ThreadPool pool(hardware.threads);
    for (int i = 3; i < argc; ++i) compare(find_kernel(argv[1]), argv[i], hardware, pool);
  } catch (const Error& error) {
    fmt::print(stderr, "peak_share: {}\n", error.what());
    return 1;
  }
}
