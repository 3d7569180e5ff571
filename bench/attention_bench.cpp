// Times every attention kernel that this machine can run: attention_bench --benchmark_filter=decode.*/F16
//
// Each iteration reads the keys and values of another layer, as a model does, so that long contexts come from memory.
#include <benchmark/benchmark.h>

#include "attention_cases.h"
#include "base/thread_pool.h"
#include "hardware/this_machine.h"
#include "tensor/arena.h"

namespace millrace {
namespace {

constexpr size_t kLayers = 30;
constexpr size_t kMostBytes = size_t{512} << 20;

AttentionCase decode(int heads, int kv_heads, int dim, int context, DType kv) {
  return {"decode", kv, heads, kv_heads, dim, 64, 0, 0, {{context - 1, 1}}, 1, 1, false};
}
AttentionCase prefill(int heads, int kv_heads, int dim, int rows, DType kv) {
  return {"prefill", kv, heads, kv_heads, dim, 64, 0, 0, {{0, rows}}, 1, 1, false};
}

std::vector<AttentionCase> timed_cases() {
  std::vector<AttentionCase> cases;
  for (DType kv : {DType::F16, DType::F32, DType::BF16, DType::Q8_0}) {
    for (int context : {128, 1024, 2048, 4096, 16384}) cases.push_back(decode(9, 3, 64, context, kv));
    for (int context : {1024, 4096}) {
      cases.push_back(decode(32, 8, 64, context, kv));
      cases.push_back(decode(32, 8, 128, context, kv));
    }
    for (int rows : {512, 2048}) cases.push_back(prefill(9, 3, 64, rows, kv));
    cases.push_back(prefill(32, 8, 64, 512, kv));
    cases.push_back(prefill(32, 8, 128, 512, kv));
  }
  return cases;
}

std::string title(const AttentionCase& c) {
  return c.name + "/" + std::to_string(c.heads) + "x" + std::to_string(c.kv_heads) + "x" + std::to_string(c.head_dim) +
         "/" + std::to_string(c.slices[0].past + c.slices[0].rows) + "/" + std::string(name(c.kv));
}

double kv_bytes(const AttentionCase& c) {
  return 2.0 * (c.slices[0].past + c.slices[0].rows) * c.kv_heads * static_cast<double>(row_bytes(c.kv, c.head_dim));
}

double flops(const AttentionCase& c) {
  double pairs = 0;
  for (int row = 0; row < c.slices[0].rows; ++row) pairs += c.slices[0].past + row + 1;
  return 4 * pairs * c.heads * c.head_dim;
}

void time_kernel(benchmark::State& state, const AttentionCase& c, const AttentionKernel* kernel, int threads) {
  const Hardware hardware = this_machine(threads);
  ThreadPool pool(threads);
  Random random(1);
  AttentionBatch batch(c, random);
  TestMatrix out(batch.rows(), batch.width());
  AttentionArgs args = batch.args(out);
  const size_t bytes = batch.pool_bytes(), layers = std::clamp<size_t>(kMostBytes / (2 * bytes), 1, kLayers);
  Arena memory("keys and values", layers * 2 * Arena::padded(bytes));
  std::vector<std::pair<std::byte*, std::byte*>> layer_kv;
  for (size_t i = 0; i < layers; ++i) {
    layer_kv.emplace_back(memory.take(bytes), memory.take(bytes));
    std::memcpy(layer_kv[i].first, args.kv.keys, bytes);
    std::memcpy(layer_kv[i].second, args.kv.values, bytes);
  }
  Arena workspace("workspace", kernel->workspace_bytes(batch.problem(), hardware));
  const Executor executor{&pool, workspace.take(workspace.capacity())};
  size_t layer = 0;
  for (auto _ : state) {
    std::tie(args.kv.keys, args.kv.values) = layer_kv[layer];
    kernel->run(args, executor);
    layer = (layer + 1) % layers;
  }
  const double runs = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(kv_bytes(c) * runs / 1e9, Counter::kIsRate);
  state.counters["GFLOP/s"] = Counter(flops(c) * runs / 1e9, Counter::kIsRate);
  state.counters["roof%"] = Counter(
      100 * runs *
          std::max(kv_bytes(c) / 1e9 / hardware.ceilings.read_gbs, flops(c) / 1e9 / hardware.ceilings.f32_gflops),
      Counter::kIsRate);
  state.counters["estimate_us"] = kernel->estimate_us(batch.problem(), hardware);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  benchmark::Initialize(&argc, argv);
  const Hardware hardware = this_machine();
  for (const AttentionCase& c : timed_cases()) {
    for (const AttentionKernel* kernel : AttentionOp::cpu()) {
      if (kernel->name() == "reference") continue;
      AttentionProblem problem{c.kv,       Precision::Fast, c.heads,      c.kv_heads,
                               c.head_dim, c.head_dim,      c.block_size, c.window};
      if (!kernel->can_run(problem, hardware)) continue;
      for (int threads : {1, hardware.threads}) {
        const std::string full = title(c) + "/" + std::string(kernel->name()) + "/t" + std::to_string(threads);
        benchmark::RegisterBenchmark(full.c_str(),
                                     [=](benchmark::State& state) { time_kernel(state, c, kernel, threads); })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
        if (hardware.threads == 1) break;
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
