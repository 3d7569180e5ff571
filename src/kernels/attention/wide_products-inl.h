// Scores and weighted sums for the few queries of a decode, in f32: each vector of keys or values is widened once and serves
// all heads of the group while it is in a register.

#if defined(MILLRACE_WIDE_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_WIDE_PRODUCTS_INL_H
#undef MILLRACE_WIDE_PRODUCTS_INL_H
#else
#define MILLRACE_WIDE_PRODUCTS_INL_H
#endif

#include "kernels/attention/schedule.h"
#include "kernels/simd/rows-inl.h"

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

template <DType dtype>
struct WideProducts {
  static constexpr DType kDType = dtype;
  static constexpr bool kApproximate = false;

  // q: [group, stride], scaled, zeros after dim.
  void prepare(const float* queries, int64_t head_dim, int64_t row_stride, int group) {
    q = queries;
    dim = head_dim;
    stride = row_stride;
  }
  // Heads [first, first + heads) against n <= kKvTile keys. `keys` repeats the last one up to a multiple of four.
  template <int heads>
  void score(int first, const std::byte* const* keys, int n, float* scores) const {
    score_tile<dtype, heads>(keys, n, q + first * stride, dim, stride, scores);
  }
  template <int heads>
  void add(const std::byte* const* values, int n, const float* weights, float* sums) const {
    add_tile<dtype, heads>(values, n, weights, dim, stride, sums);
  }

  const float* q = nullptr;
  int64_t dim = 0, stride = 0;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_WIDE_PRODUCTS_INL_H
