// Times every linear kernel that this machine can run: linear_bench --benchmark_filter='Q4_1/.*/m1/'
//
// Each iteration reads another copy of the weights, as a model reads another layer, so that they come from memory.
#include <benchmark/benchmark.h>

#include "base/thread_pool.h"
#include "dataflow/cold_inputs.h"
#include "dataflow/roofline.h"
#include "hardware/this_machine.h"
#include "kernels/linear/linear.h"
#include "linear_cases.h"

namespace millrace {
namespace {

constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 128, 512};

struct Case {
  LinearProblem problem;
  const LinearLayout* layout;
  const LinearKernel* kernel;
  int threads;
};

void time_kernel(benchmark::State& state, const Case& c) {
  const LinearProblem& p = c.problem;
  const Hardware hardware = this_machine(c.threads);
  ThreadPool pool(c.threads);
  const auto device = host_device(hardware);
  ColdWeights weights(p.format, p.n, p.k, *c.layout, *device, pool);
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
  state.counters["GB/s"] = Counter(static_cast<double>(weights.bytes()) * runs / 1e9, Counter::kIsRate);
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
    for (const auto* layout : LinearOp::cpu_layouts()) {
      const LinearProblem problem{format, layout->name(), Precision::Fast, shape.n, shape.k, m};
      for (const auto* kernel : LinearOp::cpu()) {
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
