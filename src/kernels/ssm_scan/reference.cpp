#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/row_work.h"
#include "kernels/ssm_scan/ssm_scan.h"

namespace millrace {
namespace {

class ReferenceSsmScan final : public Kernel<SsmScanOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.rows * p.shape.state_elements());
  }

  void run(const Args& a, const Executor&) const override {
    for (const SequenceSlice& slice : a.sequences) {
      auto* state = reinterpret_cast<float*>(a.state + static_cast<size_t>(slice.slot) * a.stride);
      for (int64_t row = slice.first_row; row < slice.first_row + slice.rows; ++row) {
        for (int h = 0; h < a.shape.heads; ++h) step(a, row, h, state + int64_t{h} * a.shape.state * a.shape.head_dim);
      }
    }
  }

 private:
  static void step(const Args& a, int64_t row, int h, float* state) {
    const int64_t dim = a.shape.head_dim, n = a.shape.state, group = h / (a.shape.heads / a.shape.groups);
    const float *x = a.x.row<float>(row) + h * dim, *b = a.b.row<float>(row) + group * n;
    const float* c = a.c.row<float>(row) + group * n;
    const double raw = double(a.dt.row<float>(row)[h]) + a.dt_bias[h];
    const double dt = std::clamp<double>(raw > 20 ? raw : std::log1p(std::exp(raw)), a.least_step, a.most_step);
    const double decay = std::exp(dt * a.a[h]);
    for (int64_t p = 0; p < dim; ++p) {
      double sum = double(a.d[h]) * x[p];
      for (int64_t i = 0; i < n; ++i) {
        const double next = decay * state[i * dim + p] + dt * x[p] * b[i];
        state[i * dim + p] = static_cast<float>(next);
        sum += next * c[i];
      }
      a.out.row<float>(row)[h * dim + p] = static_cast<float>(sum);
    }
  }
};

}  // namespace

const Kernel<SsmScanOp>* SsmScanOp::reference() {
  static const ReferenceSsmScan kernel;
  return &kernel;
}

std::string to_string(const SsmScanOp::Problem& p) {
  return fmt::format("ssm_scan {}x{}x{} {} groups={} state={}", p.rows, p.shape.heads, p.shape.head_dim, name(p.inputs),
                     p.shape.groups, p.shape.state);
}

}  // namespace millrace
