#include <cmath>

#include "kernels/norm/norm.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

float sum(const float* x, int64_t n) {
  F32Vec a = hn::Zero(kF32), b = a;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = hn::Add(a, load(x + i));
    b = hn::Add(b, load(x + i + kLanes));
  }
  float total = sum_of(hn::Add(a, b));
  for (; i < n; ++i) total += x[i];
  return total;
}

// Sum of (x - mean)^2. Subtracts the mean first: E[x^2] - mean^2 would cancel.
float sum_of_squares(const float* x, float mean, int64_t n) {
  F32Vec a = hn::Zero(kF32), b = a;
  const F32Vec m = broadcast(mean);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const F32Vec p = hn::Sub(load(x + i), m), q = hn::Sub(load(x + i + kLanes), m);
    a = hn::MulAdd(p, p, a);
    b = hn::MulAdd(q, q, b);
  }
  float total = sum_of(hn::Add(a, b));
  for (; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
  return total;
}

template <bool weighted, bool biased, bool accumulate>
void write_normed(const float* weight, const float* bias, const float* x, float* out, float mean, float inverse,
                  int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F32Vec y = hn::Mul(hn::Sub(load(x + i), broadcast(mean)), broadcast(inverse));
    if constexpr (weighted) y = hn::Mul(y, load(weight + i));
    if constexpr (biased) y = hn::Add(y, load(bias + i));
    if constexpr (accumulate) y = hn::Add(load(out + i), y);
    store(y, out + i);
  }
  for (; i < n; ++i) {
    float y = (x[i] - mean) * inverse;
    if constexpr (weighted) y *= weight[i];
    if constexpr (biased) y += bias[i];
    out[i] = accumulate ? out[i] + y : y;
  }
}

void norm_group(const NormOp::Args& args, const float* x, float* out, int64_t n, int64_t group) {
  const int64_t at = args.weights_per_group ? group * n : 0;  // where the weights of this group begin
  const bool second = args.second_weight != nullptr && group >= args.second_from;
  const float* first_weight = args.weight != nullptr ? args.weight + at : nullptr;
  const float* weight = second ? args.second_weight : first_weight;
  const float* bias = args.bias != nullptr ? args.bias + at : nullptr;
  const float count = static_cast<float>(n);
  const float mean = args.kind == NormKind::Layer ? sum(x, n) / count : 0.0f;
  const float inverse = 1 / std::sqrt(sum_of_squares(x, mean, n) / count + args.epsilon);
  const auto write = [&]<bool weighted, bool biased>() {
    if (args.accumulate) return write_normed<weighted, biased, true>(weight, bias, x, out, mean, inverse, n);
    write_normed<weighted, biased, false>(weight, bias, x, out, mean, inverse, n);
  };
  if (weight != nullptr && bias != nullptr) return write.template operator()<true, true>();
  if (weight != nullptr) return write.template operator()<true, false>();
  if (bias != nullptr) return write.template operator()<false, true>();
  write.template operator()<false, false>();
}

class SimdNorm : public Kernel<NormOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.isa.has(kTargetIsa); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.cols, 16, hardware);
  }

  void run(const Args& args, const Executor& executor) const override {
    const int64_t n = args.x.cols / args.groups;
    for_rows(executor, args.x.rows, args.x.cols, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* x = args.x.row<float>(row);
        float* out = args.out.row<float>(row);
        for (int64_t i = 0; i < args.x.cols; i += n) norm_group(args, x + i, out + i, n, i / n);
      }
    });
  }
};

}  // namespace

const Kernel<NormOp>* norm_kernel() {
  static const SimdNorm kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<NormOp> NormOp::cpu() { return {MR_EACH_TARGET(norm_kernel), NormOp::reference()}; }

}  // namespace millrace
#endif
