#include "hardware/cuda_device.h"
#include "kernels/cuda/chunked/launch.cuh"
#include "kernels/ssm_scan/cuda/kernels.h"

namespace millrace {
namespace {

// In the words of the chunked recurrences C is q, B is k and x is v.
struct ScanGate {
  static constexpr bool kSolved = false;
  GpuMatrix dt;
  const float *dt_bias, *a;
  float least_step, most_step;

  __device__ chunked::GateRow row(int64_t row, int h) const {
    const float raw = dt.get(row, h) + dt_bias[h];
    const float step = fminf(fmaxf(raw > 20 ? raw : log1pf(expf(raw)), least_step), most_step);
    return {step * a[h], step};
  }
};

class ChunkedSsmScan final : public Kernel<SsmScanOp> {
 public:
  std::string_view name() const override { return "cuda_chunks"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && hardware.architecture >= 80 && p.inputs == DType::BF16 && !p.invariant &&
           p.shape.state % 8 == 0 && p.shape.state <= 256 && p.shape.head_dim % 16 == 0 &&
           chunked::fits<false>(p.shape.state, hardware);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    if (!chunked::is_prompt(p.rows, p.sequences)) return ssm_scan_by_rows().estimate_us(p, hardware);
    const double states = double(p.sequences) * double(p.shape.state_elements());
    return gpu_us(8.0 * states, hardware, 0.8) + chunked::rows_us(p.rows, p.sequences, p.shape.inner());
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return chunked::workspace_bytes<false>(p.rows, p.shape.heads);
  }
  void run(const Args& a, const Executor& executor) const override {
    const SsmShape& s = a.shape;
    const chunked::ChunkedParams params{.q = a.c,
                                        .k = a.b,
                                        .v = a.x,
                                        .out = a.out,
                                        .heads = s.heads,
                                        .key_heads = s.groups,
                                        .key_dim = s.state,
                                        .value_dim = s.head_dim,
                                        .tiled = false,
                                        .skip = a.d,
                                        .state = a.state,
                                        .stride = a.stride,
                                        .slices = a.tables.slices,
                                        .slots = a.tables.slots,
                                        .records = executor.workspace};
    const ScanGate gate{a.dt, a.dt_bias, a.a, a.least_step, a.most_step};
    const auto between = [&](int32_t least, int32_t most) { run_ssm_scan_by_rows(a, executor, least, most); };
    const int64_t rows = a.out.rows;
    if (s.state <= 64) return chunked::run<64>(params, gate, a.sequences, rows, executor, between);
    if (s.state <= 128) return chunked::run<128>(params, gate, a.sequences, rows, executor, between);
    chunked::run<256>(params, gate, a.sequences, rows, executor, between);
  }
};

}  // namespace

const Kernel<SsmScanOp>& ssm_scan_by_chunks() {
  static const ChunkedSsmScan kernel;
  return kernel;
}

}  // namespace millrace
