// Converts weights of any packed format to int8 with one scale per up to 512 elements of a row, for prompts: applying a
// scale per 32 elements would take longer than the products. The new step is 1/127 of the largest weight, at most a
// sixteenth of the step of a 4-bit format. Many rows of x share the cost. Included inside a target region, after the
// formats.
#pragma once

#include "kernels/linear/rows8/x86/unpack-inl.h"

constexpr int kSuperGroups = 16;

// Joins two strips of eight rows into one row of a weight tile.
MR_INLINE inline __m512i beside(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }
MR_INLINE inline __m512 beside(__m256 a, __m256 b) { return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1); }

// Quads j and j + 4 of sixteen rows.
struct WideQuads {
  __m512i low, high;
};

template <class Format, int j>
MR_INLINE inline WideQuads wide_quads(const typename Format::Block& a, const typename Format::Block& b, int g) {
  if constexpr (requires { Format::nibbles(a, g); }) {
    const __m512i both = beside(load_256(Format::nibbles(a, g)[j]), load_256(Format::nibbles(b, g)[j]));
    const __m512i mask = _mm512_set1_epi8(15);
    return {_mm512_and_si512(both, mask), _mm512_and_si512(_mm512_srli_epi16(both, 4), mask)};
  } else {
    const QuadPair of_a = Format::template quads<j>(a, g), of_b = Format::template quads<j>(b, g);
    return {beside(of_a.low, of_b.low), beside(of_a.high, of_b.high)};
  }
}

// The largest magnitude of a weight whose group has this scale and minimum, per row.
template <class Format>
MR_INLINE inline __m512 largest_weight(__m512 scale, __m512 offset) {
  if constexpr (Format::kSigned) return _mm512_mul_ps(_mm512_abs_ps(scale), _mm512_set1_ps(128));
  const __m512 other = _mm512_fmadd_ps(scale, _mm512_set1_ps(Format::kMost), offset);
  return _mm512_max_ps(_mm512_abs_ps(offset), _mm512_abs_ps(other));
}

// Requantizes a stretch of sixteen rows: new q = old q * factor + offset. Even and odd bytes are multiplied separately
// as 16-bit words, in fixed point with a unit of 1 / kOne.
template <class Format>
class Requantizer {
 public:
  // `place_of(i)` is the location of the stretch's i-th group in both strips.
  template <class PlaceOf>
  MR_INLINE Requantizer(int64_t groups, const PlaceOf& place_of) {
    __m512 most = _mm512_setzero_ps();
    for (int64_t i = 0; i < groups; ++i) {
      const auto place = place_of(i);
      const Scales<Format> a(*place.a), b(*place.b);
      unrolled<Format::kScales>([&](auto s) MR_INLINE {
        factor_[i][s] = beside(a.scale(place.g, s), b.scale(place.g, s));
        offset_[i][s] = _mm512_mul_ps(factor_[i][s], _mm512_set1_ps(-Format::kZero));
        if constexpr (Format::kMins)
          offset_[i][s] = _mm512_add_ps(offset_[i][s], beside(a.min(place.g, s), b.min(place.g, s)));
        most = _mm512_max_ps(most, largest_weight<Format>(factor_[i][s], offset_[i][s]));
      });
    }
    step_ = _mm512_mul_ps(most, _mm512_set1_ps(1 / 127.0f));
    const __mmask16 any = _mm512_cmp_ps_mask(most, _mm512_setzero_ps(), _CMP_GT_OQ);
    inverse_ = _mm512_maskz_div_ps(any, _mm512_set1_ps(kOne), step_);
  }

  MR_INLINE __m512 step() const { return step_; }

  struct Affine {
    __m512i factor, offset;
  };
  MR_INLINE Affine affine(int64_t group, int s) const {
    return {
        twice(_mm512_mul_ps(factor_[group][s], inverse_)),
        twice(_mm512_fmadd_ps(offset_[group][s], inverse_, _mm512_set1_ps(kOne / 2)))};  // plus one half, for rounding
  }

  MR_INLINE static __m512i apply(const Affine& by, __m512i q) {
    if constexpr (Format::kSigned) {
      const __m512i even = _mm512_mulhrs_epi16(_mm512_srai_epi16(_mm512_slli_epi16(q, 8), 8), by.factor);
      const __m512i odd = _mm512_mulhrs_epi16(_mm512_srai_epi16(q, 8), by.factor);
      return merged(even, _mm512_slli_epi16(odd, 8));
    } else {
      const auto times = [&](__m512i words)
                             MR_INLINE { return _mm512_add_epi16(_mm512_mullo_epi16(words, by.factor), by.offset); };
      const __m512i even = times(_mm512_and_si512(q, _mm512_set1_epi16(255)));
      return merged(_mm512_srli_epi16(even, 8), times(_mm512_srli_epi16(q, 8)));
    }
  }

 private:
  // Without an offset the factor is a Q15 fraction, and the multiplication rounds.
  static constexpr float kOne = Format::kSigned ? 32768 : 256;

  // Even bytes of `even`, odd bytes of `odd`.
  MR_INLINE static __m512i merged(__m512i even, __m512i odd) {
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, odd);
  }
  // The low 16 bits of each row's integer, duplicated for even and odd bytes.
  MR_INLINE static __m512i twice(__m512 rows) {
    const __m512i v = _mm512_cvtps_epi32(rows);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, v, _mm512_slli_epi32(v, 16));
  }

  __m512 factor_[kSuperGroups][Format::kScales], offset_[kSuperGroups][Format::kScales];
  __m512 step_, inverse_;
};
