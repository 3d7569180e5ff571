#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/elementwise/elementwise.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

void add_row(const float* a, const float* b, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Add(load(a + i), load(b + i)), out + i);
  for (; i < n; ++i) out[i] = a[i] + b[i];
}

void multiply_row(const float* a, const float* b, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Mul(load(a + i), load(b + i)), out + i);
  for (; i < n; ++i) out[i] = a[i] * b[i];
}

void scale_row(const float* a, float factor, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Mul(load(a + i), broadcast(factor)), out + i);
  for (; i < n; ++i) out[i] = a[i] * factor;
}

void softcap_row(const float* a, float cap, float* out, int64_t n) {
  const F32Vec c = broadcast(cap), inverse = broadcast(1 / cap);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Mul(c, tanh(hn::Mul(load(a + i), inverse))), out + i);
  for (; i < n; ++i) out[i] = cap * std::tanh(a[i] / cap);
}

void clamp_row(const float* a, float limit, float* out, int64_t n) {
  const F32Vec most = broadcast(limit), least = broadcast(-limit);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(hn::Min(hn::Max(load(a + i), least), most), out + i);
  for (; i < n; ++i) out[i] = std::min(std::max(a[i], -limit), limit);
}

void scale_row_by_sigmoid(const float* a, const float* b, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(hn::Div(load(a + i), hn::Add(broadcast(1.0f), exp(hn::Neg(load(b + i))))), out + i);
  for (; i < n; ++i) out[i] = a[i] / (1 + std::exp(-b[i]));
}

void combine_row(const ElementwiseOp::Args& args, int64_t row) {
  const int64_t n = args.out.cols;
  float* out = args.out.row<float>(row);
  switch (args.kind) {
    case Elementwise::Add:
      return add_row(args.a.row<float>(row), args.b.row<float>(row), out, n);
    case Elementwise::Multiply:
      return multiply_row(args.a.row<float>(row), args.b.row<float>(row), out, n);
    case Elementwise::Scale:
      return scale_row(args.a.row<float>(row), args.factor, out, n);
    case Elementwise::Softcap:
      return softcap_row(args.a.row<float>(row), args.factor, out, n);
    case Elementwise::Gather:
      std::memcpy(out, args.a.row<float>(args.ids[row]), static_cast<size_t>(n) * sizeof(float));
      return;
    case Elementwise::ScaleByPosition: {
      const auto periods = static_cast<float>(args.ids[row] / args.period);
      return scale_row(args.a.row<float>(row), 1 + args.factor * std::log1p(periods), out, n);
    }
    case Elementwise::Clamp:
      return clamp_row(args.a.row<float>(row), args.factor, out, n);
    case Elementwise::ScaleRowsBySigmoid:
      return scale_row(args.a.row<float>(row), 1 / (1 + std::exp(-*args.b.row<float>(row))), out, n);
    case Elementwise::ScaleBySigmoid:
      return scale_row_by_sigmoid(args.a.row<float>(row), args.b.row<float>(row), out, n);
  }
}

class SimdElementwise : public Kernel<ElementwiseOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.isa.has(kTargetIsa); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.cols, 12, hardware);
  }

  void run(const Args& args, const Executor& executor) const override {
    for_rows(executor, args.out.rows, args.out.cols, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) combine_row(args, row);
    });
  }
};

}  // namespace

const Kernel<ElementwiseOp>* elementwise_kernel() {
  static const SimdElementwise kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<ElementwiseOp> ElementwiseOp::cpu() {
  return {MR_EACH_TARGET(elementwise_kernel), ElementwiseOp::reference()};
}

}  // namespace millrace
#endif
