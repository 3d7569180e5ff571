#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "kernels/delta_rule/delta_rule.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

double inverse_length(const float* x, int n) {
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += double(x[i]) * x[i];
  return 1 / std::sqrt(squares + DeltaRuleOp::kLengthEpsilon);
}

void norm_and_gate(const DeltaRuleOp::Args& a, int64_t row, int h) {
  const int n = a.shape.value_dim;
  float* out = a.out.row<float>(row) + int64_t{h} * n;
  const float* gate = a.gate.row<float>(row) + int64_t{h} * n;
  double squares = 0;
  for (int j = 0; j < n; ++j) squares += double(out[j]) * out[j];
  const double factor = 1 / std::sqrt(squares / n + a.epsilon);
  for (int j = 0; j < n; ++j)
    out[j] = static_cast<float>(out[j] * factor * a.norm[j] * gate[j] / (1 + std::exp(-double(gate[j]))));
}

class ReferenceDeltaRule final : public Kernel<DeltaRuleOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(4 * p.rows * p.shape.state_elements());
  }

  void run(const Args& a, const Executor&) const override {
    for (const SequenceSlice& slice : a.sequences) {
      for (int32_t t = 0; t < slice.rows; ++t) {
        for (int h = 0; h < a.shape.value_heads; ++h) step(a, slice, slice.first_row + t, h);
      }
    }
  }

 private:
  // Column by column of the state: a column needs only one element of v and gives one of the output.
  static void step(const Args& a, const SequenceSlice& slice, int64_t row, int h) {
    const DeltaRuleShape& s = a.shape;
    const float* q = a.q.row<float>(row) + int64_t{s.key_head(h)} * s.key_dim;
    const float* k = a.k.row<float>(row) + int64_t{s.key_head(h)} * s.key_dim;
    const float* v = a.v.row<float>(row) + int64_t{h} * s.value_dim;
    float* out = a.out.row<float>(row) + int64_t{h} * s.value_dim;
    auto* state = reinterpret_cast<float*>(a.state + static_cast<size_t>(slice.slot) * a.stride) +
                  int64_t{h} * s.key_dim * s.value_dim;
    const double of_q = inverse_length(q, s.key_dim) / std::sqrt(double(s.key_dim));
    const double of_k = inverse_length(k, s.key_dim);
    const double decay = std::exp(a.decay[h] * softplus(double(a.a.row<float>(row)[h]) + a.dt_bias[h]));
    const double beta = 1 / (1 + std::exp(-double(a.b.row<float>(row)[h])));
    for (int j = 0; j < s.value_dim; ++j) {
      double known = 0, result = 0;
      for (int i = 0; i < s.key_dim; ++i) known += decay * state[i * s.value_dim + j] * k[i] * of_k;
      const double change = beta * (v[j] - known);
      for (int i = 0; i < s.key_dim; ++i) {
        float& x = state[i * s.value_dim + j];
        x = static_cast<float>(decay * x + k[i] * of_k * change);
        result += double(x) * q[i] * of_q;
      }
      out[j] = static_cast<float>(result);
    }
    if (a.norm != nullptr) norm_and_gate(a, row, h);
  }
};

}  // namespace

const Kernel<DeltaRuleOp>* DeltaRuleOp::reference() {
  static const ReferenceDeltaRule kernel;
  return &kernel;
}

std::string to_string(const DeltaRuleOp::Problem& p) {
  return fmt::format("delta_rule {} rows {} heads={}/{} {}x{}{}", p.rows, name(p.inputs), p.shape.value_heads,
                     p.shape.key_heads, p.shape.key_dim, p.shape.value_dim, p.shape.tiled ? " tiled" : "");
}

}  // namespace millrace
