// Softmax of query vectors over one tile of scores, in three variants that differ in when the maximum moves. Scores are
// in units of log2(e), so that weights are powers of two.

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

// The largest score exceeds the limits after an overflow, or if there were no scores.
HWY_INLINE bool out_of_limits(F32Vec largest) { return any(hn::Gt(hn::Abs(largest), broadcast(kScoreLimit))); }

HWY_INLINE F32Vec limited(F32Vec score) {
  return hn::Min(hn::Max(score, broadcast(-kScoreLimit)), broadcast(kScoreLimit));
}

// With a softcap the factor log2(e) is applied after it; without one, the queries already include it.
HWY_INLINE F32Vec capped(F32Vec score, float softcap) {
  return hn::Mul(tanh(hn::Mul(limited(score), broadcast(1 / softcap))), broadcast(softcap * kLog2E));
}

// Updates the maximum after a tile with this largest score. False: the unified maximum does not fit, and the row must
// be computed again.
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

// The largest of n scores, in every lane. Applies the softcap first, and repeats the last score up to a multiple of
// kLanes.
HWY_INLINE F32Vec largest_score(float* scores, int n, float softcap) {
  const int64_t padded = padded_to_lanes(n);
  for (int64_t i = n; i < padded; ++i) scores[i] = scores[n - 1];
  for (int64_t i = 0; softcap > 0 && i < padded; i += kLanes) store(capped(load(scores + i), softcap), scores + i);
  F32Vec most = load(scores);
  for (int64_t i = kLanes; i < padded; i += kLanes) most = hn::Max(most, load(scores + i));
  return hn::MaxOfLanes(kF32, most);
}

// Whether n numbers, padded to a multiple of kLanes, are all finite.
HWY_INLINE bool all_finite(const float* x, int64_t n) {
  F32Vec zeros = hn::Zero(kF32);  // stays zero while all numbers are finite
  for (int64_t i = 0; i < n; i += kLanes) zeros = hn::MulAdd(load(x + i), hn::Zero(kF32), zeros);
  return hn::AllTrue(kF32, hn::Eq(zeros, hn::Zero(kF32)));
}

// Turns n scores into weights and returns their sum.
template <Exp2 accuracy = Exp2::Accurate>
HWY_INLINE float weigh_row(float* scores, int n, F32Vec maximum) {
  constexpr int kTogether = 4;
  F32Vec total = hn::Zero(kF32);
  int64_t i = 0;
  for (; i + kTogether * kLanes <= n; i += kTogether * kLanes) {
    F32Vec weight[kTogether];
    MR_UNROLL for (int j = 0; j < kTogether; ++j) weight[j] = hn::Sub(load(scores + i + j * kLanes), maximum);
    exp2<accuracy>(weight);
    MR_UNROLL for (int j = 0; j < kTogether; ++j) store(weight[j], scores + i + j * kLanes);
    total = hn::Add(total, hn::Add(hn::Add(weight[0], weight[1]), hn::Add(weight[2], weight[3])));
  }
  for (; i + kLanes <= n; i += kLanes) {
    F32Vec weight[1] = {hn::Sub(load(scores + i), maximum)};
    exp2<accuracy>(weight);
    store(weight[0], scores + i);
    total = hn::Add(total, weight[0]);
  }
  float sum = sum_of(total);
  if (i == n) return sum;
  F32Vec weight[1] = {hn::Sub(load(scores + i), maximum)};
  exp2<accuracy>(weight);
  store(weight[0], scores + i);
  for (; i < n; ++i) sum += scores[i];
  return sum;
}

// Moves the maximum of a row as the variant requires for scores of up to `most`.
template <Softmax variant>
HWY_INLINE bool move_row(F32Vec most, float* scores, int n, float& maximum, float& total, float* sums, int64_t stride) {
  if (out_of_limits(most)) {
    for (int64_t i = 0; i < n; i += kLanes) store(limited(load(scores + i)), scores + i);
    most = limited(most);
  }
  const float before = maximum;
  F32Vec moved = broadcast(maximum);
  if (!move_maximum<variant>(most, moved)) return false;
  maximum = hn::GetLane(moved);
  if (maximum != before && before != kNoScore) {
    const float factor = std::exp2(before - maximum);
    total *= factor;
    scale_row(sums, factor, stride);
  }
  return true;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_SOFTMAX_INL_H
