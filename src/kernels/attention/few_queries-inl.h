// Attention of the query vectors of one row under one KV head: decode. Keys and values are read once, in their own
// format, and each vector of them serves all heads of the group while it is in a register.

#if defined(MILLRACE_FEW_QUERIES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_FEW_QUERIES_INL_H
#undef MILLRACE_FEW_QUERIES_INL_H
#else
#define MILLRACE_FEW_QUERIES_INL_H
#endif

#include "kernels/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// [a, b, c, d] each summed over its lanes, into out[0..3].
HWY_INLINE void sums_of_four(F32Vec a, F32Vec b, F32Vec c, F32Vec d, float* out) {
#if HWY_TARGET == HWY_NEON
  vst1q_f32(out, vpaddq_f32(vpaddq_f32(a.raw, b.raw), vpaddq_f32(c.raw, d.raw)));
#else
  const F32Vec x = hn::Add(hn::InterleaveLower(kF32, a, c), hn::InterleaveUpper(kF32, a, c));
  const F32Vec y = hn::Add(hn::InterleaveLower(kF32, b, d), hn::InterleaveUpper(kF32, b, d));
  const F32Vec z = hn::Add(hn::InterleaveLower(kF32, x, y), hn::InterleaveUpper(kF32, x, y));
  alignas(64) float blocks[kLanes];
  store(z, blocks);
  for (int i = 0; i < 4; ++i) {
    float sum = 0;
    for (int64_t block = 0; block < kLanes; block += 4) sum += blocks[block + i];
    out[i] = sum;
  }
#endif
}

// Scores of `heads` query vectors (stride padded_dim, zeros after dim) against four keys: scores[h * kKvTile + 0..3].
template <DType dtype, int heads>
HWY_INLINE void score_four(const std::byte* const* keys, const float* q, int64_t dim, int64_t padded_dim,
                           float* scores) {
  F32Vec acc[heads][4];
  MR_UNROLL for (int h = 0; h < heads; ++h) { MR_UNROLL for (int t = 0; t < 4; ++t) acc[h][t] = hn::Zero(kF32); }
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    const F32Vec k[4] = {row_at<dtype>(keys[0], i), row_at<dtype>(keys[1], i), row_at<dtype>(keys[2], i),
                         row_at<dtype>(keys[3], i)};
    MR_UNROLL for (int h = 0; h < heads; ++h) {
      const F32Vec x = load(q + h * padded_dim + i);
      MR_UNROLL for (int t = 0; t < 4; ++t) acc[h][t] = hn::MulAdd(x, k[t], acc[h][t]);
    }
  }
  if (i < dim) {
    MR_UNROLL for (int t = 0; t < 4; ++t) {
      const F32Vec k = row_end<dtype>(keys[t], i, dim);
      MR_UNROLL for (int h = 0; h < heads; ++h) acc[h][t] = hn::MulAdd(load(q + h * padded_dim + i), k, acc[h][t]);
    }
  }
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    sums_of_four(acc[h][0], acc[h][1], acc[h][2], acc[h][3], scores + h * kKvTile);
  }
}

// Scores of n <= kKvTile keys. `keys` holds kKvTile pointers, the last one repeated after n.
template <DType dtype, int heads>
void score_tile(const std::byte* const* keys, int n, const float* q, int64_t dim, int64_t padded_dim, float* scores) {
  for (int t = 0; t < n; t += 4) score_four<dtype, heads>(keys + t, q, dim, padded_dim, scores + t);
}

// sums[h][i..] += the weighted values, `vectors` vectors of them at a time.
template <DType dtype, int heads, int vectors>
HWY_INLINE void add_values(const std::byte* const* values, int n, const float* weights, int64_t i, int64_t padded_dim,
                           float* sums) {
  F32Vec acc[heads][vectors];
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int j = 0; j < vectors; ++j) acc[h][j] = load(sums + h * padded_dim + i + j * kLanes);
  }
  for (int t = 0; t < n; ++t) {
    F32Vec v[vectors];
    MR_UNROLL for (int j = 0; j < vectors; ++j) v[j] = row_at<dtype>(values[t], i + j * kLanes);
    MR_UNROLL for (int h = 0; h < heads; ++h) {
      const F32Vec w = broadcast(weights[h * kKvTile + t]);
      MR_UNROLL for (int j = 0; j < vectors; ++j) acc[h][j] = hn::MulAdd(w, v[j], acc[h][j]);
    }
  }
  MR_UNROLL for (int h = 0; h < heads; ++h) {
    MR_UNROLL for (int j = 0; j < vectors; ++j) store(acc[h][j], sums + h * padded_dim + i + j * kLanes);
  }
}

template <DType dtype, int heads>
void add_tile(const std::byte* const* values, int n, const float* weights, int64_t dim, int64_t padded_dim,
              float* sums) {
  constexpr int kWide = HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3 ? 4 : 2;  // 32 vector registers, or 16
  int64_t i = 0;
  for (; i + kWide * kLanes <= dim; i += kWide * kLanes) {
    add_values<dtype, heads, kWide>(values, n, weights, i, padded_dim, sums);
  }
  for (; i + kLanes <= dim; i += kLanes) add_values<dtype, heads, 1>(values, n, weights, i, padded_dim, sums);
  if (i == dim) return;
  for (int t = 0; t < n; ++t) {
    const F32Vec v = row_end<dtype>(values[t], i, dim);
    for (int h = 0; h < heads; ++h) {
      float* sum = sums + h * padded_dim + i;
      store(hn::MulAdd(broadcast(weights[h * kKvTile + t]), v, load(sum)), sum);
    }
  }
}

// Turns n scores into weights (zeros up to a multiple of kLanes).
template <Softmax variant>
HWY_INLINE bool weigh(float* scores, int n, float softcap, float& maximum, float& total, float* sums, int64_t stride) {
  const int64_t padded = padded_to_lanes(n);
  for (int64_t i = n; i < padded; ++i) scores[i] = scores[n - 1];
  for (int64_t i = 0; softcap > 0 && i < padded; i += kLanes) store(capped(load(scores + i), softcap), scores + i);
  F32Vec most = load(scores);
  for (int64_t i = kLanes; i < padded; i += kLanes) most = hn::Max(most, load(scores + i));
  most = hn::MaxOfLanes(kF32, most);
  if (out_of_limits(most)) {
    for (int64_t i = 0; i < padded; i += kLanes) store(limited(load(scores + i)), scores + i);
    most = limited(most);
  }
  const float before = maximum;
  F32Vec moved = broadcast(maximum);
  if (!move_maximum<variant>(most, moved)) return false;
  maximum = hn::GetLane(moved);
  if (variant != Softmax::Unified && maximum != before && before != kNoScore) {
    const float factor = std::exp2(before - maximum);
    total *= factor;
    scale_row(sums, factor, stride);
  }
  F32Vec weights = hn::Zero(kF32);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const F32Vec weight = exp2(hn::Sub(load(scores + i), moved));
    store(weight, scores + i);
    if (i + kLanes <= n) weights = hn::Add(weights, weight);
  }
  total += sum_of(weights);
  for (int64_t i = n / kLanes * kLanes; i < n; ++i) total += scores[i];
  return true;
}

// One row, all heads of its group.
template <DType dtype, Softmax variant>
class FewQueries {
 public:
  FewQueries(const TileShape& shape, const Scratch& scratch) : shape_(shape), scratch_(scratch) {}

  // False: the unified maximum does not fit these scores.
  bool run(const Piece& piece, Partial& partial) const {
    shape_.template start<variant>(piece.tile, partial);
    for (int g = 0; g < shape_.group; ++g) {
      const float* q = shape_.query(piece.tile, 0, g);
      float* to = scratch_.q + g * shape_.stride;
      for (int64_t i = 0; i < shape_.stride; ++i) to[i] = i < shape_.dim ? q[i] * shape_.query_scale : 0.0f;
    }
    RowPointers rows;
    for (int begin = piece.begin; begin < piece.end; begin += kKvTile) {
      const int n = std::min(kKvTile, piece.end - begin);
      find_rows(shape_.args, piece.tile, begin, n, rows);
      for (int g = 0; g < shape_.group; g += 4) {
        if (!run_heads(g, rows, n, partial)) return false;
      }
    }
    return variant != Softmax::Unified || shape_.totals_are_sound(piece.tile, partial);
  }

 private:
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
    const int64_t stride = shape_.stride;
    float* sums = partial.sums + first * stride;
    score_tile<dtype, heads>(rows.keys, n, scratch_.q + first * stride, shape_.dim, stride, scratch_.scores);
    for (int h = 0; h < heads; ++h) {
      if (!weigh<variant>(scratch_.scores + h * kKvTile, n, shape_.args.softcap, partial.maxima[first + h],
                          partial.totals[first + h], sums + h * stride, stride)) {
        return false;
      }
    }
    add_tile<dtype, heads>(rows.values, n, scratch_.scores, shape_.dim, stride, sums);
    return true;
  }

  const TileShape& shape_;
  const Scratch& scratch_;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_FEW_QUERIES_INL_H
