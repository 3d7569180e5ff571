#include "kernels/grouped_linear/weighted_sum.h"

#include <iterator>
#include <utility>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/grouped_linear/weighted_sum.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

void add(const WeightedSum& s, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    F32Vec sum = hn::Zero(kF32);
    for (int64_t j = 0; j < s.count; ++j) {
      if (s.rows[j] == WeightedSum::kNone) continue;
      sum = hn::MulAdd(broadcast(s.weights[j]), load(s.products + s.rows[j] * s.stride + i), sum);
    }
    store(hn::Add(load(y + i), sum), y + i);
  }
  for (; i < n; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < s.count; ++j) {
      if (s.rows[j] != WeightedSum::kNone) sum += s.weights[j] * s.products[s.rows[j] * s.stride + i];
    }
    y[i] += sum;
  }
}

}  // namespace

std::pair<Isa, AddWeightedSum> weighted_sum() { return {kTargetIsa, add}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {
AddWeightedSum add_weighted_sum_for(const Hardware& hardware) {
  const std::pair<Isa, AddWeightedSum> all[] = {MR_EACH_TARGET(weighted_sum)};
  for (const auto& [isa, add] : all) {
    if (hardware.isa.has(isa)) return add;
  }
  return std::end(all)[-1].second;  // the baseline
}

}  // namespace millrace
#endif
