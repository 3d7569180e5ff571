// C[i][j] (+)= sum over k of A[k][i] B[k][j] for small f32 matrices in the L1 and L2 caches.

#if defined(MILLRACE_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_PRODUCT_INL_H
#undef MILLRACE_PRODUCT_INL_H
#else
#define MILLRACE_PRODUCT_INL_H
#endif

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// Tile of C in registers, rows x vectors: 16 accumulators with 32 registers, 8 with 16.
constexpr int64_t kProductRows = HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int kProductVectors = 2;

#if HWY_TARGET == HWY_NEON
// acc + b * a[lane]: the by-lane instruction avoids broadcasts, which would use the same pipes.
template <int lane>
HWY_INLINE F32Vec add_product(F32Vec acc, F32Vec b, F32Vec a) {
  return F32Vec(vfmaq_laneq_f32(acc.raw, b.raw, a.raw, lane));
}
#endif

// acc[i][j] += a[i] * b[j] for one k.
template <int vectors>
HWY_INLINE void add_outer_product(const float* a, const F32Vec (&b)[vectors], F32Vec (&acc)[kProductRows][vectors]) {
#if HWY_TARGET == HWY_NEON
  MR_UNROLL for (int i = 0; i < kProductRows; i += 4) {
    const F32Vec four = load(a + i);
    MR_UNROLL for (int j = 0; j < vectors; ++j) {
      acc[i][j] = add_product<0>(acc[i][j], b[j], four);
      acc[i + 1][j] = add_product<1>(acc[i + 1][j], b[j], four);
      acc[i + 2][j] = add_product<2>(acc[i + 2][j], b[j], four);
      acc[i + 3][j] = add_product<3>(acc[i + 3][j], b[j], four);
    }
  }
#else
  MR_UNROLL for (int i = 0; i < kProductRows; ++i) {
    const F32Vec one = broadcast(a[i]);
    MR_UNROLL for (int j = 0; j < vectors; ++j) acc[i][j] = hn::MulAdd(one, b[j], acc[i][j]);
  }
#endif
}

template <bool accumulate, int vectors>
HWY_INLINE void multiply_tile(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t depth,
                              float* c, int64_t c_stride) {
  F32Vec acc[kProductRows][vectors];
  MR_UNROLL for (int i = 0; i < kProductRows; ++i) {
    MR_UNROLL for (int j = 0; j < vectors; ++j) {
      acc[i][j] = accumulate ? load(c + i * c_stride + j * kLanes) : hn::Zero(kF32);
    }
  }
  for (int64_t k = 0; k < depth; ++k, a += a_stride, b += b_stride) {
    F32Vec row[vectors];
    MR_UNROLL for (int j = 0; j < vectors; ++j) row[j] = load(b + j * kLanes);
    add_outer_product<vectors>(a, row, acc);
  }
  MR_UNROLL for (int i = 0; i < kProductRows; ++i) {
    MR_UNROLL for (int j = 0; j < vectors; ++j) store(acc[i][j], c + i * c_stride + j * kLanes);
  }
}

// A is [depth, rows], B [depth, cols], C [rows, cols]. Computes rows up to the next multiple of kProductRows; cols is a
// multiple of kLanes.
template <bool accumulate>
void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t depth, int64_t rows,
              int64_t cols, float* c, int64_t c_stride) {
  int64_t j = 0;
  for (; j + kProductVectors * kLanes <= cols; j += kProductVectors * kLanes) {
    for (int64_t i = 0; i < rows; i += kProductRows) {
      multiply_tile<accumulate, kProductVectors>(a + i, a_stride, b + j, b_stride, depth, c + i * c_stride + j,
                                                 c_stride);
    }
  }
  for (; j < cols; j += kLanes) {
    for (int64_t i = 0; i < rows; i += kProductRows) {
      multiply_tile<accumulate, 1>(a + i, a_stride, b + j, b_stride, depth, c + i * c_stride + j, c_stride);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_PRODUCT_INL_H
