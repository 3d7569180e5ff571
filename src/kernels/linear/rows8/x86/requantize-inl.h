// Weights of any packed format as int8 with one scale for up to 512 elements of a row, for prompts: a scale for every
// 32 would take longer than the products. A new step is 1/127 of the largest weight, a sixteenth or less of a step of
// 4-bit formats; what it costs is spread over the rows of x. Included inside a target region, after the formats.
#pragma once

#include "kernels/linear/rows8/x86/unpack-inl.h"

constexpr int kSuperGroups = 16;

// Two strips of eight rows each, side by side: a row of a tile of weights.
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

// The largest size of a weight whose group has this scale and minimum, row by row.
template <class Format>
MR_INLINE inline __m512 largest_weight(__m512 scale, __m512 offset) {
  if constexpr (Format::kSigned) return _mm512_mul_ps(_mm512_abs_ps(scale), _mm512_set1_ps(128));
  const __m512 other = _mm512_fmadd_ps(scale, _mm512_set1_ps(Format::kMost), offset);
  return _mm512_max_ps(_mm512_abs_ps(offset), _mm512_abs_ps(other));
}

// Sixteen rows of a stretch: how an old q becomes a new one, new = old * factor + offset. Bytes are multiplied as
// words, those at even places and those at odd ones, in fractions of 1 / kOne.
template <class Format>
class Requantizer {
 public:
  // `place_of(i)` is where the i-th group of the stretch lies in both strips.
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
    return {twice(_mm512_mul_ps(factor_[group][s], inverse_)),
            twice(_mm512_fmadd_ps(offset_[group][s], inverse_, _mm512_set1_ps(kOne / 2)))};  // for rounding
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
  // What is multiplied without an offset is a fraction, and rounded by the instruction.
  static constexpr float kOne = Format::kSigned ? 32768 : 256;

  // Bytes at even places of one and at odd places of the other.
  MR_INLINE static __m512i merged(__m512i even, __m512i odd) {
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, odd);
  }
  // Low words of the rows' integers, for both kinds of places.
  MR_INLINE static __m512i twice(__m512 rows) {
    const __m512i v = _mm512_cvtps_epi32(rows);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, v, _mm512_slli_epi32(v, 16));
  }

  __m512 factor_[kSuperGroups][Format::kScales], offset_[kSuperGroups][Format::kScales];
  __m512 step_, inverse_;
};
