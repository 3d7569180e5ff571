// Quantizes rows of x to int8 with one scale per 32 elements. Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/rows8/x86/unpack-inl.h"

struct Quantized32 {
  __m256i q;
  float scale;
  int sum[2];  // of all 32 q, and of the last 16
};

MR_INLINE inline float largest_of(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

MR_INLINE inline int sum_of(__m128i v) {
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1)));
}

MR_INLINE inline Quantized32 quantize_32(const float* x) {
  __m256 v[4], most = _mm256_setzero_ps();
  unrolled<4>([&](auto i) MR_INLINE {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    most = _mm256_max_ps(most, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]));
  });
  // The maximum ignores NaN, which must propagate.
  const __m256 nan = _mm256_or_ps(_mm256_cmp_ps(v[0], v[1], _CMP_UNORD_Q), _mm256_cmp_ps(v[2], v[3], _CMP_UNORD_Q));
  const float largest = largest_of(_mm256_or_ps(most, nan));
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  __m256i rounded[4];
  unrolled<4>([&](auto i) MR_INLINE { rounded[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse))); });
  // The pack instructions work within 128-bit halves; the permutation below restores the order.
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(rounded[0], rounded[1]),  //
                                            _mm256_packs_epi32(rounded[2], rounded[3]));
  Quantized32 out;
  out.q = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  out.scale = _mm256_movemask_ps(nan) != 0 ? __builtin_nanf("") : largest / 127.0f;
  const __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(each(1), out.q), _mm256_set1_epi16(1));
  out.sum[1] = sum_of(_mm256_extracti128_si256(sums, 1));
  out.sum[0] = sum_of(_mm256_castsi256_si128(sums)) + out.sum[1];
  return out;
}

// The properties of the weight format that the quantization of x depends on.
struct ZeroPoint {
  int zero;
  bool halves;  // two scales per group: two sums
};

inline ZeroPoint zero_point_of(DType format) {
  ZeroPoint zero{};
  with_format(format, [&](auto f) { zero = {Dot::zero<decltype(f)>(), decltype(f)::kScales == 2}; });
  return zero;
}

// 32 elements of `rows` rows, for dot products of quads.
template <int rows>
struct XBlock {
  float scale[rows];
  float sum[2][rows];      // sums of the quantized x: all 32 elements, and the last 16
  int32_t start[2][rows];  // initial values of the integer sums, which correct for the zero point of the weights
  int8_t q[rows][32];

  MR_INLINE void set(int r, const Quantized32& v, ZeroPoint zero) {
    scale[r] = v.scale;
    for (int s = 0; s < 2; ++s) sum[s][r] = v.scale * static_cast<float>(v.sum[s]);
    start[0][r] = -zero.zero * (zero.halves ? v.sum[0] - v.sum[1] : v.sum[0]);
    start[1][r] = -zero.zero * v.sum[1];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q[r]), v.q);
  }
};

MR_INLINE inline __m256i broadcast_quad(const int8_t* quad) {
  int32_t word;
  std::memcpy(&word, quad, sizeof word);
  return _mm256_set1_epi32(word);
}

// Quantizes `valid` rows from m_begin on; the remaining rows of the tile become zeros.
template <class Block>
void quantize_tile(const Matrix& x, int64_t m_begin, int64_t valid, int rows, ZeroPoint zero, Block* out) {
  const Quantized32 nothing{_mm256_setzero_si256(), 0, {0, 0}};
  for (int64_t b = 0; b < x.cols / 32; ++b) {
    for (int r = 0; r < rows; ++r) {
      out[b].set(r, r < valid ? quantize_32(x.row<float>(m_begin + r) + 32 * b) : nothing, zero);
    }
  }
}
