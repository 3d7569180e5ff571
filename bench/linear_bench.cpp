// Times every linear kernel that this machine can run: linear_bench --benchmark_filter='Q4_1/.*/m1/'
//
// Each iteration takes another copy of the weights, as a model takes another layer, so that they come from memory.
#include <benchmark/benchmark.h>

#include "dataflow/roofline.h"
#include "hardware/this_machine.h"
#include "kernels/linear/cpu_linear.h"
#include "linear_cases.h"
#include "tensor/arena.h"

namespace millrace {
namespace {

constexpr size_t kColdBytes = size_t{96} << 20;  // more than last-level caches hold
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 128, 512};

struct Case {
  LinearProblem problem;
  const LinearLayout* layout;
  const LinearKernel* kernel;
  int threads;
};

// Copies of one matrix in the case's layout.
class Weights {
 public:
  Weights(const Case& c, ThreadPool& pool)
      : rows_(filled(c)),
        in_place_(c.layout->in_place(c.problem.format, c.problem.n, c.problem.k)),
        bytes_(in_place_ ? rows_.size() : c.layout->bytes(c.problem.format, c.problem.n, c.problem.k)),
        copies_(std::max<size_t>(1, kColdBytes / Arena::padded(bytes_))),
        arena_("weights", copies_ * Arena::padded(bytes_)) {
    const WeightView view{c.problem.format, c.problem.n, c.problem.k, rows_.data()};
    for (size_t i = 0; i < copies_; ++i) {
      std::byte* copy = arena_.take(bytes_);
      if (in_place_) {
        std::memcpy(copy, rows_.data(), bytes_);
      } else if (i == 0) {
        c.layout->pack({&view, 1}, copy, pool);
      } else {
        std::memcpy(copy, weights_[0].data, bytes_);
      }
      weights_.push_back({c.problem.format, c.problem.n, c.problem.k, c.layout, copy});
    }
  }
  const LinearWeights* next() { return &weights_[turn_++ % copies_]; }
  double bytes() const { return static_cast<double>(bytes_); }

 private:
  static std::vector<std::byte> filled(const Case& c) {
    std::mt19937 rng(1);
    return random_weights(c.problem.format, c.problem.n, c.problem.k, rng);
  }
  std::vector<std::byte> rows_;
  bool in_place_;
  size_t bytes_, copies_, turn_ = 0;
  Arena arena_;
  std::vector<LinearWeights> weights_;
};

void time_kernel(benchmark::State& state, const Case& c) {
  const LinearProblem& p = c.problem;
  const Hardware hardware = this_machine(c.threads);
  ThreadPool pool(c.threads);
  Weights weights(c, pool);
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(p.m * p.k)), y(static_cast<size_t>(p.m * p.n));
  for (auto& value : x) value = normal(rng);
  Arena workspace("workspace", std::max<size_t>(64, c.kernel->workspace_bytes(p, hardware)));
  const Executor executor{&pool, workspace.take(workspace.capacity())};
  LinearArgs args;
  args.x = {DType::F32, p.m, p.k, p.k, reinterpret_cast<std::byte*>(x.data())};
  args.y = {DType::F32, p.m, p.n, p.n, reinterpret_cast<std::byte*>(y.data())};
  for (auto _ : state) {
    args.weights = weights.next();
    c.kernel->run(args, executor);
  }
  const double runs = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(weights.bytes() * runs / 1e9, Counter::kIsRate);
  state.counters["GOP/s"] = Counter(work_of(p).operations * runs / 1e9, Counter::kIsRate);
  state.counters["roof%"] = Counter(roof_us(p, hardware) * 1e-4 * runs, Counter::kIsRate);
  state.counters["estimate_us"] = c.kernel->estimate_us(p, hardware);
}

void register_case(const Case& c) {
  const LinearProblem& p = c.problem;
  const std::string title = std::string(name(p.format)) + "/" + std::to_string(p.n) + "x" + std::to_string(p.k) + "/m" +
                            std::to_string(p.m) + "/" + std::string(c.kernel->name()) + "/t" +
                            std::to_string(c.threads);
  benchmark::RegisterBenchmark(title.c_str(), [=](benchmark::State& state) { time_kernel(state, c); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void register_shape(DType format, LinearShape shape, const Hardware& hardware) {
  if (shape.k % info(format).block != 0) return;
  for (const int64_t m : kRows) {
    for (const auto* layout : cpu_linear_layouts()) {
      const LinearProblem problem{format, layout->name(), Precision::Fast, false, shape.n, shape.k, m};
      for (const auto* kernel : cpu_linear_kernels()) {
        if (kernel->name() == "reference" || !kernel->can_run(problem, hardware)) continue;
        register_case({problem, layout, kernel, 1});
        if (hardware.threads > 1) register_case({problem, layout, kernel, hardware.threads});
      }
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  benchmark::Initialize(&argc, argv);
  const Hardware hardware = this_machine();
  for (const auto& type : all_dtypes()) {
    for (const auto& shape : kSmallModelShapes) register_shape(type.dtype, shape, hardware);
    for (const auto& shape : kBillionModelShapes) register_shape(type.dtype, shape, hardware);
  }
  benchmark::RunSpecifiedBenchmarks();
}
