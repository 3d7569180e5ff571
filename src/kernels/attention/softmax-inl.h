// The softmax of query vectors over one tile of scores, in three variants that differ in when the maximum moves. Scores
// are in units of log2(e), so that weights are powers of two.

#if defined(MILLRACE_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_SOFTMAX_INL_H
#undef MILLRACE_SOFTMAX_INL_H
#else
#define MILLRACE_SOFTMAX_INL_H
#endif

#include <cmath>

#include "kernels/attention/scores.h"
#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

HWY_INLINE bool any(hn::Mask<F32> mask) { return !hn::AllFalse(kF32, mask); }

// Scores whose largest lies outside of the limits came from an overflow, or there were none.
HWY_INLINE bool out_of_limits(F32Vec largest) { return any(hn::Gt(hn::Abs(largest), broadcast(kScoreLimit))); }

HWY_INLINE F32Vec limited(F32Vec score) {
  return hn::Min(hn::Max(score, broadcast(-kScoreLimit)), broadcast(kScoreLimit));
}

// With a cap the factor log2(e) comes after it; without one it is in the queries already.
HWY_INLINE F32Vec capped(F32Vec score, float softcap) {
  return hn::Mul(tanh(hn::Mul(limited(score), broadcast(1 / softcap))), broadcast(softcap * kLog2E));
}

// Where the maximum stands after a tile whose largest score is given. False: the unified maximum does not fit, and
// nothing of the row may be used.
template <Softmax variant>
HWY_INLINE bool move_maximum(F32Vec largest, F32Vec& maximum) {
  if constexpr (variant == Softmax::Online) maximum = hn::Max(maximum, largest);
  if constexpr (variant == Softmax::Lazy) {
    maximum = hn::IfThenElse(hn::Gt(largest, hn::Add(maximum, broadcast(kLazySlack))), largest, maximum);
  }
  if constexpr (variant == Softmax::Unified) {
    maximum = hn::IfThenElse(hn::Eq(maximum, broadcast(kNoScore)), largest, maximum);
    return !any(hn::Gt(largest, hn::Add(maximum, broadcast(kUnifiedRange))));
  }
  return true;
}

HWY_INLINE void scale_row(float* row, float factor, int64_t padded) {
  for (int64_t i = 0; i < padded; i += kLanes) store(hn::Mul(load(row + i), broadcast(factor)), row + i);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_SOFTMAX_INL_H
