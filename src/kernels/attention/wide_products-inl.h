// Scores and weighted sums for the few queries of a decode, in f32: each vector of keys or values is widened once and
// used for all heads of the group while it is in a register.

#if defined(MILLRACE_WIDE_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_WIDE_PRODUCTS_INL_H
#undef MILLRACE_WIDE_PRODUCTS_INL_H
#else
#define MILLRACE_WIDE_PRODUCTS_INL_H
#endif

#include "kernels/attention/workspace.h"
#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// Sums of the lanes of a, b, c and d, into out[0..3].
HWY_INLINE void sums_of_four(F32Vec a, F32Vec b, F32Vec c, F32Vec d, float* out) {
#if HWY_TARGET == HWY_NEON
  vst1q_f32(out, vpaddq_f32(vpaddq_f32(a.raw, b.raw), vpaddq_f32(c.raw, d.raw)));
#else
  const F32Vec x = hn::Add(hn::InterleaveLower(kF32, a, c), hn::InterleaveUpper(kF32, a, c));
  const F32Vec y = hn::Add(hn::InterleaveLower(kF32, b, d), hn::InterleaveUpper(kF32, b, d));
  const F32Vec z = hn::Add(hn::InterleaveLower(kF32, x, y), hn::InterleaveUpper(kF32, x, y));
  const hn::Full128<float> d4;
#if HWY_TARGET == HWY_AVX3
  const hn::Half<F32> d8;
  const auto half = hn::Add(hn::LowerHalf(d8, z), hn::UpperHalf(d8, z));
  hn::StoreU(hn::Add(hn::LowerHalf(d4, half), hn::UpperHalf(d4, half)), d4, out);
#elif HWY_TARGET == HWY_AVX2
  hn::StoreU(hn::Add(hn::LowerHalf(d4, z), hn::UpperHalf(d4, z)), d4, out);
#else
  hn::StoreU(z, d4, out);
#endif
#endif
}

template <DType dtype>
class WideProducts {
 public:
  static constexpr DType kDType = dtype;
  static constexpr bool kApproximate = false;

  // q: [heads, stride], scaled, padded with zeros after dim.
  void prepare(const float* q, int heads, int64_t dim, int64_t stride) {
    q_ = q;
    dim_ = dim;
    stride_ = stride;
    row_bytes_ = row_bytes(dtype, dim);
  }

  // Scores of `heads` query vectors against n contiguous keys: scores[h * kScoreStride + t]; values up to the next
  // multiple of four are undefined.
  template <int heads>
  HWY_NOINLINE void score(int first, const std::byte* keys, int n, float* scores) const {
    const float* q = q_ + first * stride_;
    int t = 0;
    for (; t + 4 <= n; t += 4, keys += 4 * row_bytes_) {
      score_four<heads>(keys, keys + row_bytes_, keys + 2 * row_bytes_, keys + 3 * row_bytes_, q, scores + t);
    }
    if (t == n) return;
    const auto key = [&](int i) { return keys + static_cast<size_t>(std::min(i, n - 1 - t)) * row_bytes_; };
    score_four<heads>(key(0), key(1), key(2), key(3), q, scores + t);
  }

  // sums[h * stride + i] += sum over t of weights[h * kScoreStride + t] * values[t][i].
  template <int heads>
  HWY_NOINLINE void add(const std::byte* values, int n, const float* weights, float* sums) const {
    constexpr int kWide = HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3 ? 4 : 2;  // 32 vector registers, or 16
    int64_t i = 0;
    for (; i + kWide * kLanes <= dim_; i += kWide * kLanes) add_some<heads, kWide>(values, n, weights, i, sums);
    for (; i + kLanes <= dim_; i += kLanes) add_some<heads, 1>(values, n, weights, i, sums);
    if (i == dim_) return;
    for (int t = 0; t < n; ++t, values += row_bytes_) {
      const F32Vec v = row_end<dtype>(values, i, dim_);
      for (int h = 0; h < heads; ++h) {
        float* sum = sums + h * stride_ + i;
        store(hn::MulAdd(broadcast(weights[h * kScoreStride + t]), v, load(sum)), sum);
      }
    }
  }

 private:
  template <int heads>
  HWY_INLINE void score_four(const std::byte* k0, const std::byte* k1, const std::byte* k2, const std::byte* k3,
                             const float* q, float* scores) const {
    const std::byte* const keys[4] = {k0, k1, k2, k3};
    F32Vec acc[heads][4];
    MR_UNROLL for (int h = 0; h < heads; ++h) { MR_UNROLL for (int t = 0; t < 4; ++t) acc[h][t] = hn::Zero(kF32); }
    int64_t i = 0;
    for (; i + kLanes <= dim_; i += kLanes) {
      F32Vec k[4];
      MR_UNROLL for (int t = 0; t < 4; ++t) k[t] = row_at<dtype>(keys[t], i);
      MR_UNROLL for (int h = 0; h < heads; ++h) {
        const F32Vec x = load(q + h * stride_ + i);
        MR_UNROLL for (int t = 0; t < 4; ++t) acc[h][t] = hn::MulAdd(x, k[t], acc[h][t]);
      }
    }
    if (i < dim_) {
      MR_UNROLL for (int t = 0; t < 4; ++t) {
        const F32Vec k = row_end<dtype>(keys[t], i, dim_);
        MR_UNROLL for (int h = 0; h < heads; ++h) acc[h][t] = hn::MulAdd(load(q + h * stride_ + i), k, acc[h][t]);
      }
    }
    MR_UNROLL for (int h = 0; h < heads; ++h) {
      sums_of_four(acc[h][0], acc[h][1], acc[h][2], acc[h][3], scores + h * kScoreStride);
    }
  }

  // Elements [i, i + vectors * kLanes) of the sums.
  template <int heads, int vectors>
  HWY_INLINE void add_some(const std::byte* values, int n, const float* weights, int64_t i, float* sums) const {
    F32Vec acc[heads][vectors];
    MR_UNROLL for (int h = 0; h < heads; ++h) {
      MR_UNROLL for (int j = 0; j < vectors; ++j) acc[h][j] = load(sums + h * stride_ + i + j * kLanes);
    }
    for (int t = 0; t < n; ++t, values += row_bytes_) {
      F32Vec v[vectors];
      MR_UNROLL for (int j = 0; j < vectors; ++j) v[j] = row_at<dtype>(values, i + j * kLanes);
      MR_UNROLL for (int h = 0; h < heads; ++h) {
        const F32Vec w = broadcast(weights[h * kScoreStride + t]);
        MR_UNROLL for (int j = 0; j < vectors; ++j) acc[h][j] = hn::MulAdd(w, v[j], acc[h][j]);
      }
    }
    MR_UNROLL for (int h = 0; h < heads; ++h) {
      MR_UNROLL for (int j = 0; j < vectors; ++j) store(acc[h][j], sums + h * stride_ + i + j * kLanes);
    }
  }

  const float* q_ = nullptr;
  int64_t dim_ = 0, stride_ = 0;
  size_t row_bytes_ = 0;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_WIDE_PRODUCTS_INL_H
