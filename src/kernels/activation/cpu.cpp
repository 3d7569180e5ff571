#include "kernels/activation/activation.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

template <Activation kind>
HWY_INLINE F32Vec activate(F32Vec x) {
  const F32Vec one = broadcast(1.0f);
  if constexpr (kind == Activation::Silu) return hn::Div(x, hn::Add(one, exp(hn::Neg(x))));
  if constexpr (kind == Activation::Relu) return hn::Max(x, hn::Zero(kF32));
  if constexpr (kind == Activation::ReluSquared) {
    const F32Vec positive = hn::Max(x, hn::Zero(kF32));
    return hn::Mul(positive, positive);
  }
  if constexpr (kind == Activation::GeluTanh) {
    // (1 + tanh u) / 2 is the logistic function of 2u, which does not cancel for negative u.
    const F32Vec cubic = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), broadcast(0.044715f), x);
    return hn::Div(x, hn::Add(one, exp(hn::Mul(cubic, broadcast(-1.5957691216f)))));
  }
  if constexpr (kind == Activation::GeluErf) {
    const F32Vec half_tail =
        hn::Mul(hn::Mul(broadcast(0.5f), x), erfc_of_positive(hn::Mul(hn::Abs(x), broadcast(0.70710678f))));
    return hn::IfThenElse(hn::Lt(x, hn::Zero(kF32)), half_tail, hn::Sub(x, half_tail));
  }
}

template <Activation kind, bool gated>
void activate_row(const float* x, const float* gate, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F32Vec y = activate<kind>(load(x + i));
    if constexpr (gated) y = hn::Mul(y, load(gate + i));
    store(y, out + i);
  }
  if (i == n) return;
  alignas(64) float tail[kLanes] = {};
  std::memcpy(tail, x + i, static_cast<size_t>(n - i) * sizeof(float));
  store(activate<kind>(load(tail)), tail);
  for (int64_t j = 0; i + j < n; ++j) out[i + j] = gated ? tail[j] * gate[i + j] : tail[j];
}

HWY_INLINE F32Vec clamped_swiglu(F32Vec gate, F32Vec up, const SwigluClamp& clamp) {
  const F32Vec one = broadcast(1.0f), limit = broadcast(clamp.limit);
  gate = hn::Min(gate, limit);
  up = hn::Max(hn::Min(up, limit), hn::Neg(limit));
  const F32Vec sigmoid_inverse = hn::Add(one, exp(hn::Mul(gate, broadcast(-clamp.slope))));
  return hn::Div(hn::Mul(hn::Add(up, one), gate), sigmoid_inverse);
}

void clamped_swiglu_row(const float* gate, const float* up, const SwigluClamp& clamp, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(clamped_swiglu(load(gate + i), load(up + i), clamp), out + i);
  if (i == n) return;
  alignas(64) float gates[kLanes] = {}, ups[kLanes] = {};
  const auto bytes = static_cast<size_t>(n - i) * sizeof(float);
  std::memcpy(gates, gate + i, bytes);
  std::memcpy(ups, up + i, bytes);
  store(clamped_swiglu(load(gates), load(ups), clamp), gates);
  std::memcpy(out + i, gates, bytes);
}

using ActivateRow = void (*)(const float* x, const float* gate, float* out, int64_t n);

template <bool gated>
ActivateRow choose(Activation kind) {
  switch (kind) {
    case Activation::Silu:
      return activate_row<Activation::Silu, gated>;
    case Activation::GeluTanh:
      return activate_row<Activation::GeluTanh, gated>;
    case Activation::GeluErf:
      return activate_row<Activation::GeluErf, gated>;
    case Activation::Relu:
      return activate_row<Activation::Relu, gated>;
    case Activation::ReluSquared:
      return activate_row<Activation::ReluSquared, gated>;
    case Activation::ClampedSwiglu:
      break;
  }
  return nullptr;
}

class SimdActivation : public Kernel<ActivationOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.isa.has(kTargetIsa) && (p.gated || p.kind != Activation::ClampedSwiglu);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.cols, 100, hardware);  // exponentials dominate: charged as 100 bytes per element
  }

  void run(const Args& args, const Executor& executor) const override {
    const Matrix* gate = args.gate_with;
    const ActivateRow activate = gate != nullptr ? choose<true>(args.kind) : choose<false>(args.kind);
    for_rows(executor, args.x.rows, args.x.cols * 2, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (activate == nullptr) {
          clamped_swiglu_row(args.x.row<float>(row), gate->row<float>(row), args.clamp, args.out.row<float>(row),
                             args.x.cols);
          continue;
        }
        activate(args.x.row<float>(row), gate != nullptr ? gate->row<float>(row) : nullptr, args.out.row<float>(row),
                 args.x.cols);
      }
    });
  }
};

}  // namespace

const Kernel<ActivationOp>* activation_kernel() {
  static const SimdActivation kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<ActivationOp> ActivationOp::cpu() { return {MR_EACH_TARGET(activation_kernel), ActivationOp::reference()}; }

}  // namespace millrace
#endif
