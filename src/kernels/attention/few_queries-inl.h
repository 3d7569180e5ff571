// Attention of one row under one KV head: decode. Keys and values are read once for all heads of the group.

#if defined(MILLRACE_FEW_QUERIES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_FEW_QUERIES_INL_H
#undef MILLRACE_FEW_QUERIES_INL_H
#else
#define MILLRACE_FEW_QUERIES_INL_H
#endif

#include "kernels/attention/tile-inl.h"
#include "kernels/attention/wide_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// One row under few heads walks over the keys as they are stored; a block of query vectors is worth converting them.
constexpr int kFewQueries = 8;
inline bool is_few(const QueryTile& tile, int group) { return tile.rows == 1 && group <= kFewQueries; }

// The largest of n scores, in every lane. They are capped first, and the last one is repeated up to a multiple of kLanes.
HWY_INLINE F32Vec largest_score(float* scores, int n, float softcap) {
  const int64_t padded = padded_to_lanes(n);
  for (int64_t i = n; i < padded; ++i) scores[i] = scores[n - 1];
  for (int64_t i = 0; softcap > 0 && i < padded; i += kLanes) store(capped(load(scores + i), softcap), scores + i);
  F32Vec most = load(scores);
  for (int64_t i = kLanes; i < padded; i += kLanes) most = hn::Max(most, load(scores + i));
  return hn::MaxOfLanes(kF32, most);
}

// Turns n scores into weights and returns their sum.
HWY_INLINE float weigh(float* scores, int n, F32Vec maximum) {
  F32Vec total = hn::Zero(kF32);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32Vec weight = exp2(hn::Sub(load(scores + i), maximum));
    store(weight, scores + i);
    total = hn::Add(total, weight);
  }
  float sum = sum_of(total);
  if (i == n) return sum;
  store(exp2(hn::Sub(load(scores + i), maximum)), scores + i);
  for (; i < n; ++i) sum += scores[i];
  return sum;
}

// Products say how keys are scored and values added, and in what arithmetic; see WideProducts.
template <class Products, Softmax variant>
class FewQueries {
 public:
  FewQueries(const TileShape& shape, const Scratch& scratch) : shape_(shape), scratch_(scratch) {}

  // False: the unified maximum does not fit these scores.
  bool run(const Piece& piece, Partial& partial) {
    shape_.template start<variant>(piece.tile, partial);
    prepare_queries(piece.tile);
    RowPointers rows;
    for (int begin = piece.begin; begin < piece.end; begin += kKvTile) {
      const int n = std::min(kKvTile, piece.end - begin);
      find_rows(shape_.args, piece.tile, begin, n, rows);
      for (int first = 0; first < shape_.group; first += 4) {
        if (!run_heads(first, rows, n, partial)) return false;
      }
    }
    return variant != Softmax::Unified || shape_.totals_are_sound(piece.tile, partial);
  }

 private:
  void prepare_queries(const QueryTile& tile) {
    for (int g = 0; g < shape_.group; ++g) {
      const float* q = shape_.query(tile, 0, g);
      float* to = scratch_.q + g * shape_.stride;
      for (int64_t i = 0; i < shape_.stride; ++i) to[i] = i < shape_.dim ? q[i] * shape_.query_scale : 0.0f;
    }
    products_.prepare(scratch_.q, shape_.dim, shape_.stride, shape_.group);
  }

  bool run_heads(int first, const RowPointers& rows, int n, Partial& partial) const {
    switch (std::min(4, shape_.group - first)) {
      case 1:
        return run_heads<1>(first, rows, n, partial);
      case 2:
        return run_heads<2>(first, rows, n, partial);
      case 3:
        return run_heads<3>(first, rows, n, partial);
      default:
        return run_heads<4>(first, rows, n, partial);
    }
  }

  template <int heads>
  bool run_heads(int first, const RowPointers& rows, int n, Partial& partial) const {
    float* sums = partial.sums + first * shape_.stride;
    F32Vec most[heads];
    products_.template score<heads>(first, rows.keys, n, scratch_.scores);
    for (int h = 0; h < heads; ++h) most[h] = largest_score(scratch_.scores + h * kKvTile, n, shape_.args.softcap);
    if constexpr (Products::kApproximate) {
      if (!trusted(most)) {
        WideProducts<Products::kDType> wide;
        wide.prepare(scratch_.q, shape_.dim, shape_.stride, shape_.group);
        wide.template score<heads>(first, rows.keys, n, scratch_.scores);
        for (int h = 0; h < heads; ++h) most[h] = largest_score(scratch_.scores + h * kKvTile, n, shape_.args.softcap);
      }
    }
    for (int h = 0; h < heads; ++h) {
      if (!move(most[h], scratch_.scores + h * kKvTile, n, partial.maxima[first + h], partial.totals[first + h],
                sums + h * shape_.stride)) {
        return false;
      }
    }
    for (int h = 0; h < heads; ++h) {
      partial.totals[first + h] += weigh(scratch_.scores + h * kKvTile, n, broadcast(partial.maxima[first + h]));
    }
    products_.template add<heads>(rows.values, n, scratch_.scores, sums);
    return true;
  }

  // Rounded queries give scores whose error grows with their size. The weights hang on those near the largest.
  template <int heads>
  static bool trusted(const F32Vec (&most)[heads]) {
    F32Vec size = hn::Abs(most[0]);
    for (int h = 1; h < heads; ++h) size = hn::Max(size, hn::Abs(most[h]));
    return hn::AllTrue(kF32, hn::Le(size, broadcast(kTrustedScore)));  // false for NaN too
  }

  // Moves the maximum to where the variant wants it for scores that reach up to `most`.
  bool move(F32Vec most, float* scores, int n, float& maximum, float& total, float* sums) const {
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
      scale_row(sums, factor, shape_.stride);
    }
    return true;
  }

  const TileShape& shape_;
  const Scratch& scratch_;
  Products products_;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_FEW_QUERIES_INL_H
