// End of a query tile: merges the partial results of several chunks, and divides sums by totals.

#if defined(MILLRACE_FINISH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_FINISH_INL_H
#undef MILLRACE_FINISH_INL_H
#else
#define MILLRACE_FINISH_INL_H
#endif

#include <cmath>

#include "kernels/attention/scores.h"
#include "kernels/attention/workspace.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// Merges a later chunk's result into `into`, relative to the larger of the two maxima.
inline void merge(Partial& into, const Partial& from, int64_t vectors, int64_t stride) {
  for (int64_t vector = 0; vector < vectors; ++vector) {
    const float maximum = std::max(into.maxima[vector], from.maxima[vector]);
    const float keep = std::exp2(into.maxima[vector] - maximum), add = std::exp2(from.maxima[vector] - maximum);
    into.maxima[vector] = maximum;
    into.totals[vector] = into.totals[vector] * keep + from.totals[vector] * add;
    float* sums = into.sums + vector * stride;
    const float* others = from.sums + vector * stride;
    for (int64_t i = 0; i < stride; i += kLanes) {
      store(hn::MulAdd(load(others + i), broadcast(add), hn::Mul(load(sums + i), broadcast(keep))), sums + i);
    }
  }
}

// A sink adds its weight to the total. Relative to maxima far below the sink the weight is infinite and the result
// zero, which is the limit.
inline float with_sink(const AttentionArgs& args, int64_t head, float total, float maximum) {
  return args.sinks == nullptr ? total : total + std::exp2(args.sinks[head] * kLog2E - maximum);
}

inline void write_out(const AttentionArgs& args, const QueryTile& tile, const Partial& partial, int64_t stride) {
  const int64_t dim = args.kv.value_dim, group = args.heads / args.kv.kv_heads, heads = tile.kv_heads * group;
  for (int row = 0; row < tile.rows; ++row) {
    float* out = args.out.row<float>(tile.batch_row(row)) + tile.kv_head * group * dim;
    for (int64_t vector = row * heads; vector < (row + 1) * heads; ++vector, out += dim) {
      const float* sums = partial.sums + vector * stride;
      const int64_t head = tile.kv_head * group + vector % heads;
      const float inverse = 1 / with_sink(args, head, partial.totals[vector], partial.maxima[vector]);
      int64_t i = 0;
      for (; i + kLanes <= dim; i += kLanes) store(hn::Mul(load(sums + i), broadcast(inverse)), out + i);
      for (; i < dim; ++i) out[i] = sums[i] * inverse;
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_FINISH_INL_H
