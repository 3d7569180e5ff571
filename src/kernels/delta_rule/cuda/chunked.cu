#include "hardware/cuda_device.h"
#include "kernels/cuda/chunked/launch.cuh"
#include "kernels/delta_rule/cuda/kernels.h"

namespace millrace {
namespace {

using chunked::kLeastRows;

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
  // Problems of batch-invariant steps have one row: results depend on where a prompt is cut into steps.
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    const DeltaRuleShape& s = p.shape;
    return is_gpu(hardware) && hardware.architecture >= 80 && p.inputs == DType::BF16 && p.rows >= kLeastRows &&
           s.key_dim % 8 == 0 && s.key_dim <= 128 && s.value_dim % 16 == 0 && s.value_dim <= chunked::kMostValues &&
           chunked::fits<true>(s.key_dim, hardware);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double states = double(p.sequences) * double(p.shape.state_elements());
    return gpu_us(8.0 * states, hardware, 0.8) + chunked::rows_us(p.rows, p.sequences, p.shape.value_width());
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return chunked::workspace_bytes<true>(p.rows, p.shape.value_heads, p.shape.key_dim, p.shape.value_dim);
  }
  void run(const Args& a, const Executor& executor) const override {
    const auto is_short = [](const SequenceSlice& s) { return s.rows < kLeastRows; };
    if (std::any_of(a.sequences.begin(), a.sequences.end(), is_short))
      run_delta_rule_by_rows(a, executor, kLeastRows - 1);
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
    if (s.key_dim <= 64) return chunked::run<64>(params, gate, a.sequences, a.v.rows, executor);
    chunked::run<128>(params, gate, a.sequences, a.v.rows, executor);
  }
};

}  // namespace

const Kernel<DeltaRuleOp>& delta_rule_by_chunks() {
  static const ChunkedDeltaRule kernel;
  return kernel;
}

}  // namespace millrace
