#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/activation/activation.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

double activate(Activation kind, double x) {
  switch (kind) {
    case Activation::Silu:
      return x / (1 + std::exp(-x));
    case Activation::GeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::GeluErf:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::Relu:
      return x > 0 ? x : 0;
    case Activation::ReluSquared:
      return x > 0 ? x * x : 0;
    case Activation::ClampedSwiglu:
      break;
  }
  return x;
}

double clamped_swiglu(double gate, double up, const SwigluClamp& clamp) {
  const double limit = clamp.limit;
  gate = std::min(gate, limit);
  up = std::clamp(up, -limit, limit);
  return (up + 1) * gate / (1 + std::exp(-double{clamp.slope} * gate));
}

class ReferenceActivation : public Kernel<ActivationOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.device == DeviceKind::Cpu && (p.gated || p.kind != Activation::ClampedSwiglu);
  }
  double estimate_us(const Problem& p, const Hardware&) const override { return scalar_work_us(p.rows * p.cols * 5); }

  void run(const Args& args, const Executor&) const override {
    for (int64_t row = 0; row < args.x.rows; ++row) {
      const float* x = args.x.row<float>(row);
      const float* gate = args.gate_with != nullptr ? args.gate_with->row<float>(row) : nullptr;
      float* out = args.out.row<float>(row);
      for (int64_t i = 0; i < args.x.cols; ++i) {
        if (args.kind == Activation::ClampedSwiglu) {
          out[i] = static_cast<float>(clamped_swiglu(x[i], gate[i], args.clamp));
          continue;
        }
        const double y = activate(args.kind, x[i]);
        out[i] = static_cast<float>(gate != nullptr ? y * gate[i] : y);
      }
    }
  }
};

}  // namespace

const Kernel<ActivationOp>* ActivationOp::reference() {
  static const ReferenceActivation kernel;
  return &kernel;
}

std::string to_string(const ActivationOp::Problem& p) {
  static constexpr std::string_view kNames[] = {"silu", "gelu_tanh",    "gelu_erf",
                                                "relu", "relu_squared", "clamped_swiglu"};
  return fmt::format("activation {}{} {}x{}", kNames[static_cast<int>(p.kind)], p.gated ? " gated" : "", p.rows,
                     p.cols);
}

}  // namespace millrace
