// Attention of a block of query vectors under one KV head: prefill, and decode if a KV head has many query heads. Each
// tile of keys and values is converted to f32 once and used in two matrix products with a softmax in between.
//
// Scores are transposed, [position][query vector]. The softmax then runs down the columns with one query vector per
// lane and no sums across lanes, and both products have the form C[i][j] += sum over k of A[k][i] B[k][j], which reads
// whole rows.

#if defined(MILLRACE_MANY_QUERIES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_MANY_QUERIES_INL_H
#undef MILLRACE_MANY_QUERIES_INL_H
#else
#define MILLRACE_MANY_QUERIES_INL_H
#endif

#include "kernels/attention/product-inl.h"
#include "kernels/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// Query vectors per tile: enough to share the conversion of keys and values, few enough for the caches.
constexpr int kQueryTile = 64;

// Converts a tile of keys to [element][position], four rows at a time.
template <DType dtype>
void transpose_keys(const std::byte* const* rows, int n, int64_t dim, int64_t stride, float* wide, float* out) {
  const hn::Full128<float> d4;
  for (int t = 0; t < n; t += 4) {
    for (int i = 0; i < 4; ++i) widen_row<dtype>(rows[t + i], dim, wide + i * stride);
    for (int64_t e = 0; e < dim; e += 4) {
      const auto a = hn::LoadU(d4, wide + e), b = hn::LoadU(d4, wide + stride + e);
      const auto c = hn::LoadU(d4, wide + 2 * stride + e), d = hn::LoadU(d4, wide + 3 * stride + e);
      const auto ac0 = hn::InterleaveLower(d4, a, c), ac1 = hn::InterleaveUpper(d4, a, c);
      const auto bd0 = hn::InterleaveLower(d4, b, d), bd1 = hn::InterleaveUpper(d4, b, d);
      hn::StoreU(hn::InterleaveLower(d4, ac0, bd0), d4, out + e * kKvTile + t);
      hn::StoreU(hn::InterleaveUpper(d4, ac0, bd0), d4, out + (e + 1) * kKvTile + t);
      hn::StoreU(hn::InterleaveLower(d4, ac1, bd1), d4, out + (e + 2) * kKvTile + t);
      hn::StoreU(hn::InterleaveUpper(d4, ac1, bd1), d4, out + (e + 3) * kKvTile + t);
    }
  }
}

template <DType dtype, Softmax variant>
class ManyQueries {
 public:
  ManyQueries(const TileShape& shape, const Scratch& scratch) : shape_(shape), scratch_(scratch) {}

  // False: the unified maximum does not fit these scores.
  bool run(const Piece& piece, Partial& partial) {
    start(partial);
    transpose_queries();
    for (int begin = piece.begin, end; begin < piece.end; begin = end) {
      end = std::min(piece.end, (begin / kKvTile + 1) * kKvTile);
      const int n = end - begin;
      find_rows(begin, end, shape_.args.kv.keys);
      transpose_keys<dtype>(rows_, n, shape_.dim, shape_.stride, scratch_.values, scratch_.keys);
      if (!weigh(begin, n, partial)) return false;
      find_rows(begin, end, shape_.args.kv.values);
      for (int t = 0; t < n; ++t) widen_row<dtype>(rows_[t], shape_.dim, scratch_.values + t * shape_.stride);
      add(n, shape_.dim, partial);
    }
    return variant != Softmax::Unified || shape_.totals_are_sound(partial);
  }

  // The parts of run(), for callers that make queries, keys and values in Scratch themselves.
  void start(Partial& partial) const {
    const int64_t vectors = padded_vectors();
    shape_.template start<variant>(partial);
    std::fill(partial.maxima + shape_.vectors, partial.maxima + vectors, kNoScore);
    std::fill(partial.totals + shape_.vectors, partial.totals + vectors, 0.0f);
    std::fill(partial.sums + shape_.vectors * shape_.stride, partial.sums + vectors * shape_.stride, 0.0f);
  }
  // Scores of a tile of n transposed keys, turned into weights.
  bool weigh(int begin, int n, Partial& partial) const {
    const int64_t vectors = padded_vectors();
    multiply<false>(scratch_.keys, kKvTile, scratch_.q, vectors, shape_.dim, n, vectors, scratch_.scores, vectors);
    return weigh_tile(begin, n, vectors, partial);
  }
  // Adds the weighted values, of `dim` elements each.
  void add(int n, int64_t dim, Partial& partial) const {
    const int64_t vectors = padded_vectors();
    multiply<true>(scratch_.scores, vectors, scratch_.values, shape_.stride, n, vectors, padded_to_lanes(dim),
                   partial.sums, shape_.stride);
  }

  // Columns of the transposed queries: query vectors, and zeros behind them.
  int64_t padded_vectors() const {
    constexpr int64_t kWhole = std::max<int64_t>(kLanes, kProductRows);
    return (shape_.vectors + kWhole - 1) / kWhole * kWhole;
  }

 private:
  // Addresses of the keys (or values) of positions [begin, end); the last one is repeated up to a multiple of four.
  void find_rows(int begin, int end, const std::byte* base) {
    int t = 0;
    for (int at = begin, n; at < end; at += n) {
      n = shape_.run_in_page(at, end);
      const std::byte* row = base + shape_.offset(at, 0);
      for (int i = 0; i < n; ++i, row += shape_.row_bytes) rows_[t++] = row;
    }
    for (; t % 4 != 0; ++t) rows_[t] = rows_[t - 1];
  }

  void transpose_queries() const {
    const int64_t vectors = padded_vectors();
    for (int64_t vector = 0; vector < vectors; ++vector) {
      const int row = static_cast<int>(vector) / shape_.group, head = static_cast<int>(vector) % shape_.group;
      const float* q = row < shape_.tile.rows ? shape_.query(row, head) : nullptr;
      for (int64_t i = 0; i < shape_.dim; ++i) {
        scratch_.q[i * vectors + vector] = q != nullptr ? q[i] * shape_.query_scale : 0.0f;
      }
    }
  }

  bool weigh_tile(int begin, int n, int64_t vectors, Partial& partial) const {
    const bool masked = shape_.is_masked(begin, begin + n);
    if (shape_.args.softcap > 0) cap_scores(n, vectors);
    if (masked) mask_scores(begin, n, vectors);
    if (!(masked ? weigh_all<true>(n, vectors, partial) : weigh_all<false>(n, vectors, partial))) return false;
    if (variant == Softmax::Unified) return true;
    for (int64_t vector = 0; vector < shape_.vectors; ++vector) {
      const float factor = scratch_.factors[vector];
      if (factor != 1) scale_row(partial.sums + vector * shape_.stride, factor, shape_.stride);
    }
    return true;
  }

  template <bool masked>
  bool weigh_all(int n, int64_t vectors, Partial& partial) const {
    int64_t vector = 0;
    for (; vector + 4 * kLanes <= vectors; vector += 4 * kLanes) {
      if (!weigh_columns<masked, 4>(n, vector, vectors, partial)) return false;
    }
    for (; vector < vectors; vector += kLanes) {
      if (!weigh_columns<masked, 1>(n, vector, vectors, partial)) return false;
    }
    return true;
  }

  // Turns the scores of `columns` vectors of query vectors into weights.
  template <bool masked, int columns>
  bool weigh_columns(int n, int64_t vector, int64_t vectors, Partial& partial) const {
    float* scores = scratch_.scores + vector;
    F32Vec most[columns], maximum[columns], total[columns];
    find_largest(scores, n, vectors, most);
    MR_UNROLL for (int j = 0; j < columns; ++j) {
      const F32Vec before = load(partial.maxima + vector + j * kLanes);
      maximum[j] = before;
      if (!move_maximum<variant>(most[j], maximum[j])) return false;
      store(maximum[j], partial.maxima + vector + j * kLanes);
      const F32Vec factor = exp2_or_zero(hn::Sub(before, maximum[j]));
      store(factor, scratch_.factors + vector + j * kLanes);
      total[j] = hn::Mul(load(partial.totals + vector + j * kLanes), factor);
    }
    for (int t = 0; t < n; ++t) {
      float* at = scores + t * vectors;
      F32Vec weight[columns];
      MR_UNROLL for (int j = 0; j < columns; ++j) weight[j] = hn::Sub(load(at + j * kLanes), maximum[j]);
      exp2(weight);
      MR_UNROLL for (int j = 0; j < columns; ++j) {
        if constexpr (masked) {
          const auto seen = hn::Gt(load(at + j * kLanes), broadcast(kMasked));
          weight[j] = hn::IfThenElseZero(seen, weight[j]);
        }
        store(weight[j], at + j * kLanes);
        total[j] = hn::Add(total[j], weight[j]);
      }
    }
    MR_UNROLL for (int j = 0; j < columns; ++j) store(total[j], partial.totals + vector + j * kLanes);
    return true;
  }

  template <int columns>
  static void find_largest(float* scores, int n, int64_t vectors, F32Vec (&most)[columns]) {
    const auto look = [&]() HWY_ATTR {
      MR_UNROLL for (int j = 0; j < columns; ++j) most[j] = broadcast(kNoScore);
      for (int t = 0; t < n; ++t) {
        MR_UNROLL for (int j = 0; j < columns; ++j) most[j] = hn::Max(most[j], load(scores + t * vectors + j * kLanes));
      }
      bool outside = false;
      MR_UNROLL for (int j = 0; j < columns; ++j) outside = outside || out_of_limits(most[j]);
      return outside;
    };
    if (!look()) return;
    for (int t = 0; t < n; ++t) {
      MR_UNROLL for (int j = 0; j < columns; ++j) {
        float* at = scores + t * vectors + j * kLanes;
        const F32Vec score = load(at);
        // Masked positions stay far below all others.
        store(hn::IfThenElse(hn::Eq(score, broadcast(kMasked)), score, limited(score)), at);
      }
    }
    look();
  }

  void cap_scores(int n, int64_t vectors) const {
    for (int64_t i = 0; i < n * vectors; i += kLanes) {
      store(capped(load(scratch_.scores + i), shape_.args.softcap), scratch_.scores + i);
    }
  }

  void mask_scores(int begin, int n, int64_t vectors) const {
    for (int64_t vector = 0; vector < vectors; vector += kLanes) {
      alignas(64) float low[kLanes], high[kLanes];
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const int row = std::min(shape_.tile.rows - 1, static_cast<int>(vector + lane) / shape_.group);
        const SeenPositions seen = shape_.seen(row);
        low[lane] = static_cast<float>(seen.begin - begin);
        high[lane] = static_cast<float>(seen.end - 1 - begin);
      }
      for (int t = 0; t < n; ++t) {
        float* at = scratch_.scores + t * vectors + vector;
        const F32Vec here = broadcast(static_cast<float>(t));
        const auto seen = hn::And(hn::Ge(here, load(low)), hn::Le(here, load(high)));
        store(hn::IfThenElse(seen, load(at), broadcast(kMasked)), at);
      }
    }
  }

  const TileShape& shape_;
  const Scratch& scratch_;
  const std::byte* rows_[kKvTile];
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_MANY_QUERIES_INL_H
