// The softmax of one query vector over one tile of scores, in three variants that differ in when the running maximum
// moves. Scores are in units of log2(e), so that weights are powers of two.

#if defined(MILLRACE_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_SOFTMAX_INL_H
#undef MILLRACE_SOFTMAX_INL_H
#else
#define MILLRACE_SOFTMAX_INL_H
#endif

#include <cmath>

#include "kernels/attention/workspace.h"
#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// What the running maximum does when a tile holds a larger score. Whatever it is, it is divided out at the end.
template <Softmax variant>
HWY_INLINE bool moves_maximum(float largest, float maximum) {
  if constexpr (variant == Softmax::Online) return largest > maximum;
  return largest > maximum + kLazySlack;
}

HWY_INLINE void scale_row(float* row, float factor, int64_t padded) {
  for (int64_t i = 0; i < padded; i += kLanes) store(hn::Mul(load(row + i), broadcast(factor)), row + i);
}

// Holds n scores inside the limits, and caps them where the model does. Adds the factor of log2(e) in that case:
// without a cap it is in the queries already.
HWY_INLINE void limit_scores(float* scores, int64_t n, float softcap) {
  const F32Vec high = broadcast(kScoreLimit), low = broadcast(-kScoreLimit);
  for (int64_t i = 0; i < n; i += kLanes) {
    F32Vec s = hn::Min(hn::Max(load(scores + i), low), high);
    if (softcap > 0) s = hn::Mul(tanh(hn::Mul(s, broadcast(1 / softcap))), broadcast(softcap * kLog2E));
    store(s, scores + i);
  }
}

// Turns n scores into weights (zeros up to a multiple of kLanes) and adds them to the state; `sums` are the values
// weighted so far. False: the unified maximum does not fit these scores, and nothing of the row may be used.
template <Softmax variant>
HWY_INLINE bool weigh(float* scores, int64_t n, SoftmaxState& state, float* sums, int64_t padded_dim) {
  const int64_t padded = padded_to_lanes(n);
  for (int64_t i = n; i < padded; ++i) scores[i] = kMasked;
  F32Vec most = broadcast(kNoScore);
  for (int64_t i = 0; i < padded; i += kLanes) most = hn::Max(most, load(scores + i));
  const float largest = max_of(most);
  if constexpr (variant == Softmax::Unified) {
    if (state.maximum == kNoScore) state.maximum = largest;
    if (!(largest <= state.maximum + kUnifiedRange)) return false;
  } else if (moves_maximum<variant>(largest, state.maximum)) {
    const float factor = std::exp2(state.maximum - largest);
    state.total *= factor;
    scale_row(sums, factor, padded_dim);
    state.maximum = largest;
  }
  F32Vec total = hn::Zero(kF32);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const F32Vec weight = exp2(hn::Sub(load(scores + i), broadcast(state.maximum)));
    store(weight, scores + i);
    total = hn::Add(total, weight);
  }
  state.total += sum_of(total);
  return true;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_SOFTMAX_INL_H
