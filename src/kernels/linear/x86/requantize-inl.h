// Weights of any packed format as int8 with one scale for up to 256 elements of a row, for prompts: a scale for every
// 32 would take longer than the products. A new step is 1/127 of the largest weight, a sixteenth or less of a step of
// 4-bit formats; what it costs is spread over the rows of x. Included inside a target region, after the formats.
#pragma once

#include "kernels/linear/x86/unpack-inl.h"

constexpr int kSuperGroups = 8;

// The largest size of a weight whose group has this scale and minimum, row by row.
template <class Format>
MR_INLINE inline __m256 largest_weight(__m256 scale, __m256 offset) {
  const auto size = [&](__m256 v) MR_INLINE { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); };
  if constexpr (Format::kSigned) return _mm256_mul_ps(size(scale), _mm256_set1_ps(128));
  const __m256 other = _mm256_fmadd_ps(scale, _mm256_set1_ps(Format::kMost), offset);
  return _mm256_max_ps(size(offset), size(other));
}

// Eight rows of a stretch: how an old q becomes a new one, 256 new = old * factor + offset, in f32 and in units of the
// weights until the step is known.
template <class Format>
class Requantizer {
 public:
  // `place_of(i)` is where the i-th group of the stretch lies.
  template <class PlaceOf>
  MR_INLINE Requantizer(int64_t groups, const PlaceOf& place_of) {
    __m256 most = _mm256_setzero_ps();
    for (int64_t i = 0; i < groups; ++i) {
      const auto place = place_of(i);
      const Scales<Format> scales(*place.block);
      unrolled<Format::kScales>([&](auto s) MR_INLINE {
        factor_[i][s] = scales.scale(place.g, s);
        offset_[i][s] = _mm256_mul_ps(factor_[i][s], _mm256_set1_ps(-Format::kZero));
        if constexpr (Format::kMins) offset_[i][s] = _mm256_add_ps(offset_[i][s], scales.min(place.g, s));
        most = _mm256_max_ps(most, largest_weight<Format>(factor_[i][s], offset_[i][s]));
      });
    }
    step_ = _mm256_mul_ps(most, _mm256_set1_ps(1 / 127.0f));
    const __m256 any = _mm256_cmp_ps(most, _mm256_setzero_ps(), _CMP_GT_OQ);
    inverse_ = _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(256), step_), any);
  }

  MR_INLINE __m256 step() const { return step_; }

  // For quads of eight rows: of each row four times.
  struct Affine {
    __m512i factor, offset;
  };
  MR_INLINE Affine affine(int64_t group, int s) const {
    return {four_times(_mm256_mul_ps(factor_[group][s], inverse_)),
            four_times(_mm256_fmadd_ps(offset_[group][s], inverse_, _mm256_set1_ps(128)))};  // for rounding
  }

  MR_INLINE static QuadPair apply(const Affine& low, const Affine& high, QuadPair q) {
    const auto words = [&](const Affine& by, __m256i bytes) MR_INLINE {
      const __m512i wide = Format::kSigned ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes);
      return _mm512_srai_epi16(_mm512_add_epi16(_mm512_mullo_epi16(wide, by.factor), by.offset), 8);
    };
    // Packing works within quarters: the order of eights is mended at the end.
    const __m512i mixed = _mm512_packs_epi16(words(low, q.low), words(high, q.high));
    const __m512i both = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), mixed);
    return {_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1)};
  }

 private:
  MR_INLINE static __m512i four_times(__m256 rows) {
    // Low words of the rows' integers, each four times.
    const __m512i lanes = _mm512_set_epi16(14, 14, 14, 14, 12, 12, 12, 12, 10, 10, 10, 10, 8, 8, 8, 8, 6, 6, 6, 6, 4, 4,
                                           4, 4, 2, 2, 2, 2, 0, 0, 0, 0);
    return _mm512_permutexvar_epi16(lanes, _mm512_castsi256_si512(_mm256_cvtps_epi32(rows)));
  }

  __m256 factor_[kSuperGroups][Format::kScales], offset_[kSuperGroups][Format::kScales];
  __m256 step_, inverse_;
};
