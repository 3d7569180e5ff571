// Times the kernels of the small ops over their table of cases: row_ops_bench --benchmark_filter=norm
// Recurrent ops have shapes of real models; --benchmark_enable_random_interleaving=true compares their kernels fairly.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "hardware/this_machine.h"
#include "kernels/kernel_set.h"
#include "row_op_cases.h"
#include "ssm_scan_cases.h"
#include "support.h"

namespace millrace {
namespace {

// `bytes` pass through the caches; cache bandwidth is the roof.
template <class Op>
void register_kernels(const KernelList<Op>& kernels, const typename Op::Problem& problem, double bytes,
                      const std::function<typename Op::Args()>& args) {
  const Hardware hardware = this_machine();
  for (const Kernel<Op>* kernel : kernels) {
    if (!kernel->can_run(problem, hardware)) continue;
    const auto time = [=](benchmark::State& state) {
      ThreadPool pool(hardware.threads);
      const auto call = args();
      std::vector<std::byte> workspace(kernel->workspace_bytes(problem, hardware));
      for (auto _ : state) kernel->run(call, {&pool, workspace.data()});
      using benchmark::Counter;
      const double gigabytes = bytes * static_cast<double>(state.iterations()) / 1e9;
      state.counters["GB/s"] = Counter(gigabytes, Counter::kIsRate);
      state.counters["roof%"] = Counter(100 * gigabytes / hardware.ceilings.cache_gbs, Counter::kIsRate);
      state.counters["estimate_us"] = kernel->estimate_us(problem, hardware);
    };
    benchmark::RegisterBenchmark((to_string(problem) + "/" + std::string(kernel->name())).c_str(), time)
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

std::shared_ptr<TestMatrix> random_matrix(int64_t rows, int64_t cols) {
  Random random(1);
  return std::make_shared<TestMatrix>(rows, cols, random);
}

// One prompt of `rows` rows. The sequential kernels read and write the state once for each row.
void register_delta_rule(const DeltaRuleShape& s, int32_t rows) {
  Random random(1);
  const auto in = std::make_shared<DeltaInputs>(s, rows, random);
  const auto out = random_matrix(rows, s.value_width());
  const auto state = std::make_shared<std::vector<float>>(s.state_elements());
  const auto slices = std::make_shared<std::vector<SequenceSlice>>(1, SequenceSlice{.rows = rows, .slot = 0});
  register_kernels<DeltaRuleOp>(DeltaRuleOp::cpu(), {s, rows}, 8.0 * double(rows * s.state_elements()), [=] {
    return DeltaRuleOp::Args{.shape = s,
                             .q = in->q.view(),
                             .k = in->k.view(),
                             .v = in->v.view(),
                             .a = in->a.view(),
                             .b = in->b.view(),
                             .decay = in->decay.data(),
                             .dt_bias = in->dt_bias.data(),
                             .out = out->view(),
                             .state = reinterpret_cast<std::byte*>(state->data()),
                             .stride = 0,
                             .sequences = *slices};
  });
}

void register_scan(const SsmShape& s, int32_t rows) {
  Random random(1);
  const auto in = std::make_shared<ScanInputs>(ScanCase{s, 0, 1, rows}, 1, random);
  const auto out = random_matrix(rows, s.inner());
  const auto state = std::make_shared<std::vector<float>>(s.state_elements());
  const auto slices = std::make_shared<std::vector<SequenceSlice>>(1, SequenceSlice{.rows = rows, .slot = 0});
  register_kernels<SsmScanOp>(SsmScanOp::cpu(), {s, rows}, 8.0 * double(rows * s.state_elements()), [=] {
    return SsmScanOp::Args{.shape = s,
                           .x = in->x.view(),
                           .b = in->b.view(),
                           .c = in->c.view(),
                           .dt = in->dt.view(),
                           .out = out->view(),
                           .dt_bias = in->dt_bias.data(),
                           .a = in->a.data(),
                           .d = in->d.data(),
                           .state = reinterpret_cast<std::byte*>(state->data()),
                           .stride = 0,
                           .sequences = *slices};
  });
}

void register_all() {
  for (const int32_t rows : {1, 16, 64, 512}) {
    register_delta_rule({.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128}, rows);  // qwen3-next
    register_scan({.heads = 48, .head_dim = 64, .groups = 1, .state = 128}, rows);  // granite-4-tiny
  }
  for (const NormCase& c : norm_cases()) {
    const auto p = c.problem;
    const auto x = random_matrix(p.rows, p.cols), out = random_matrix(p.rows, p.cols),
               weight = random_matrix(1, p.cols);
    register_kernels<NormOp>(NormOp::cpu(), p, 12.0 * double(p.rows * p.cols), [=] {
      return NormOp::Args{p.kind, x->view(), out->view(), &weight->at(0, 0), nullptr, 1e-5f, int(p.groups)};
    });
  }
  for (const RopeOp::Problem& p : rope_cases()) {
    const int64_t cols = int64_t{p.heads} * p.head_dim;
    const auto x = random_matrix(p.rows, cols), angles = random_matrix(p.rows, p.rotary_dim);
    register_kernels<RopeOp>(RopeOp::cpu(), p, 8.0 * double(p.rows * cols), [=] {
      return RopeOp::Args{p.style, x->view(), angles->view(), p.heads, p.head_dim, p.rotary_dim};
    });
  }
  for (const ActivationOp::Problem& p : activation_cases()) {
    const auto x = random_matrix(p.rows, p.cols), up = random_matrix(p.rows, p.cols),
               out = random_matrix(p.rows, p.cols);
    const auto gate = std::make_shared<Matrix>(up->view());
    register_kernels<ActivationOp>(
        ActivationOp::cpu(), p, (p.gated ? 12.0 : 8.0) * double(p.rows * p.cols), [=, kept = up] {
          return ActivationOp::Args{p.kind, x->view(), p.gated ? gate.get() : nullptr, out->view(), kTestClamp};
        });
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  millrace::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
