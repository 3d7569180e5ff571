// Weights of any packed format as int8 with one scale for up to 256 elements of a row, for prompts: a scale for every
// 32 would take longer than the products. A new step is 1/127 of the largest weight, a sixteenth or less of a step of
// 4-bit formats; what it costs is spread over the rows of x. Included inside a target region, after the formats.
#pragma once

#include "kernels/linear/x86/unpack-inl.h"

constexpr int kSuperGroups = 8;

// Eight rows of a stretch: how an old q becomes a new one, 256 new = old * factor + offset; factor and offset are in
// units of the weights, `inverse` is 256 new steps.
struct StretchScales {
  __m256 factor[kSuperGroups][2], offset[kSuperGroups][2];
  __m256 inverse;
};

// Where a group lies.
template <class Format>
struct GroupPlace {
  const typename Format::Block* block;
  int g;

  MR_INLINE GroupPlace(const LinearWeights& weights, int64_t strip, int64_t group)
      : block(reinterpret_cast<const typename Format::Block*>(weights.data) +
              strip * (weights.k / (32 * Format::kGroups)) + group / Format::kGroups),
        g(static_cast<int>(group % Format::kGroups)) {}
};

// The largest size of a weight whose group has this scale and offset, row by row.
template <class Format>
MR_INLINE inline __m256 largest_weight(__m256 scale, __m256 offset) {
  const auto size = [&](__m256 v) MR_INLINE { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); };
  if constexpr (Format::kSigned) return _mm256_mul_ps(size(scale), _mm256_set1_ps(128));
  const __m256 other = _mm256_fmadd_ps(scale, _mm256_set1_ps(Format::kMost), offset);
  return _mm256_max_ps(size(offset), size(other));
}

// Finds the new step of each row from the scales of its groups.
template <class Format>
__attribute__((noinline)) void scan_stretch(const LinearWeights& weights, int64_t strip, int64_t first, int64_t groups,
                                            StretchScales& to, float* steps) {
  __m256 most = _mm256_setzero_ps();
  for (int64_t i = 0; i < groups; ++i) {
    const GroupPlace<Format> at(weights, strip, first + i);
    const Scales<Format> scales(*at.block);
    unrolled<Format::kScales>([&](auto s) MR_INLINE {
      const __m256 factor = scales.scale(at.g, s);
      __m256 offset = _mm256_mul_ps(factor, _mm256_set1_ps(-Format::kZero));
      if constexpr (Format::kMins) offset = _mm256_add_ps(offset, scales.min(at.g, s));
      most = _mm256_max_ps(most, largest_weight<Format>(factor, offset));
      to.factor[i][s] = factor;
      to.offset[i][s] = offset;
    });
  }
  const __m256 step = _mm256_mul_ps(most, _mm256_set1_ps(1 / 127.0f));
  const __m256 any = _mm256_cmp_ps(most, _mm256_setzero_ps(), _CMP_GT_OQ);
  to.inverse = _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(256), step), any);
  _mm256_storeu_ps(steps, step);
}

// Low words of eight rows' integers, each four times: for a quad of each row.
MR_INLINE inline __m512i each_four_times(__m256 rows) {
  const __m512i lanes = _mm512_set_epi16(14, 14, 14, 14, 12, 12, 12, 12, 10, 10, 10, 10, 8, 8, 8, 8, 6, 6, 6, 6, 4, 4,
                                         4, 4, 2, 2, 2, 2, 0, 0, 0, 0);
  return _mm512_permutexvar_epi16(lanes, _mm512_castsi256_si512(_mm256_cvtps_epi32(rows)));
}

struct Affine {
  __m512i factor, offset;

  MR_INLINE Affine(const StretchScales& scales, int64_t group, int s)
      : factor(each_four_times(_mm256_mul_ps(scales.factor[group][s], scales.inverse))),
        // A half more, for rounding.
        offset(each_four_times(_mm256_fmadd_ps(scales.offset[group][s], scales.inverse, _mm256_set1_ps(128)))) {}

  template <class Format>
  MR_INLINE __m512i apply(__m256i bytes) const {
    const __m512i wide = Format::kSigned ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes);
    return _mm512_srai_epi16(_mm512_add_epi16(_mm512_mullo_epi16(wide, factor), offset), 8);
  }
};

// 32 elements of eight rows, the `group`-th of the stretch: quads of the rows, `stride` bytes from quad to quad.
template <class Format>
__attribute__((noinline)) void requantize_group(const LinearWeights& weights, int64_t strip, int64_t first,
                                                int64_t group, const StretchScales& scales, int8_t* to,
                                                int64_t stride) {
  const GroupPlace<Format> at(weights, strip, first + group);
  if (at.g == 0) prefetch_after(at.block);
  const Affine low(scales, group, 0), high(scales, group, Format::kScales - 1);
  unrolled<4>([&](auto j) MR_INLINE {
    const QuadPair q = Format::template quads<j>(*at.block, at.g);
    // Packing works within quarters: the order of eights is mended at the end.
    const __m512i mixed = _mm512_packs_epi16(low.apply<Format>(q.low), high.apply<Format>(q.high));
    const __m512i both = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), mixed);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j * stride), _mm512_castsi512_si256(both));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (j + 4) * stride), _mm512_extracti64x4_epi64(both, 1));
  });
}
