#include "hardware/cuda_device.h"
#include "kernels/cuda/chunked/launch.cuh"
#include "kernels/delta_rule/cuda/kernels.h"

namespace millrace {
namespace {

struct DeltaGate {
  static constexpr bool kSolved = true;
  static constexpr float kLengthEpsilon = DeltaRuleOp::kLengthEpsilon;
  GpuMatrix a, b;
  const float *decay, *dt_bias;

  __device__ chunked::GateRow row(int64_t row, int h) const {
    const float x = a.get(row, h) + dt_bias[h];
    return {decay[h] * (x > 20 ? x : log1pf(expf(x))), 1 / (1 + expf(-b.get(row, h)))};
  }
};

class ChunkedDeltaRule final : public Kernel<DeltaRuleOp> {
 public:
  std::string_view name() const override { return "cuda_chunks"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    const DeltaRuleShape& s = p.shape;
    return is_gpu(hardware) && hardware.architecture >= 80 && p.inputs == DType::BF16 && !p.invariant &&
           s.key_dim % 8 == 0 && s.key_dim <= 128 && s.value_dim % 16 == 0 && chunked::fits<true>(s.key_dim, hardware);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    if (!chunked::is_prompt(p.rows, p.sequences)) return delta_rule_by_rows().estimate_us(p, hardware);
    const double states = double(p.sequences) * double(p.shape.state_elements());
    return gpu_us(8.0 * states, hardware, 0.8) + chunked::rows_us(p.rows, p.sequences, p.shape.value_width());
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return chunked::workspace_bytes<true>(p.rows, p.shape.value_heads);
  }
  bool takes_along(const Problem& p, const Hardware& hardware) const override { return can_run(p, hardware); }
  void run(const Args& a, const Executor& executor) const override {
    if (a.conv != nullptr && can_step_at_once(a, *executor.hardware)) return run_delta_step(a, executor);
    if (a.conv != nullptr) CausalConvOp::cuda().front()->run(*a.conv, executor);
    run_rule(a, executor);
    run_gated_norm(a, executor);
  }

 private:
  static void run_rule(const Args& a, const Executor& executor) {
    const DeltaRuleShape& s = a.shape;
    const chunked::ChunkedParams params{.q = a.q,
                                        .k = a.k,
                                        .v = a.v,
                                        .out = a.out,
                                        .heads = s.value_heads,
                                        .key_heads = s.key_heads,
                                        .key_dim = s.key_dim,
                                        .value_dim = s.value_dim,
                                        .tiled = s.tiled,
                                        .skip = nullptr,
                                        .state = a.state,
                                        .stride = a.stride,
                                        .slices = a.tables.slices,
                                        .slots = a.tables.slots,
                                        .records = executor.workspace};
    const DeltaGate gate{a.a, a.b, a.decay, a.dt_bias};
    const auto between = [&](int32_t least, int32_t most) { run_delta_rule_by_rows(a, executor, least, most); };
    const int64_t rows = a.out.rows;
    if (s.key_dim <= 64) return chunked::run<64>(params, gate, a.sequences, rows, executor, between);
    chunked::run<128>(params, gate, a.sequences, rows, executor, between);
  }
};

}  // namespace

const Kernel<DeltaRuleOp>& delta_rule_by_chunks() {
  static const ChunkedDeltaRule kernel;
  return kernel;
}

}  // namespace millrace
