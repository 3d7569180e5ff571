// Unpacks each packed format to bytes: the 32 elements of a group as eight vectors, each a quad of all eight rows. Two
// vectors come at a time, since quads j and j + 4 share bytes. Included inside a target region.
//
//   small blocks   w = d * (q - zero) + m
//   K-blocks       w = d * scale * (q - zero) - dmin * min, with integer scale and min per group
//
// The dot products take unsigned times signed bytes, so q is unsigned wherever possible: flipping the top bit of two's
// complement makes it unsigned. Dot handles formats that fill a signed byte.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

struct QuadPair {
  __m256i low, high;  // quads j and j + 4
};

MR_INLINE inline __m256i load_256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
MR_INLINE inline __m256i each(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
MR_INLINE inline __m256 load_f16(const HalfOfRow& values) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}
// 2^(e - 128): half of the E8M0 scale. An exponent of 0 is subnormal.
MR_INLINE inline __m256 load_scales(const uint8_t (&exponents)[kPackedRows]) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents)));
  const __m256i bits = _mm256_max_epi32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(1 << 22));
  return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0.5f));
}
MR_INLINE inline __m128i load_bytes(const void* bytes) { return _mm_loadl_epi64(static_cast<const __m128i*>(bytes)); }
MR_INLINE inline __m256 load_u8(const uint8_t* bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_bytes(bytes)));
}
MR_INLINE inline __m256 load_s8(const int8_t* bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_bytes(bytes)));
}

// Shifts bits from position `from` to `to`. Bits from the neighbouring byte remain and must be masked by the caller.
template <int from, int to>
MR_INLINE inline __m256i moved(__m256i bytes) {
  if constexpr (from < to) return _mm256_slli_epi16(bytes, to - from);
  if constexpr (from > to) return _mm256_srli_epi16(bytes, from - to);
  return bytes;
}

template <int j>
MR_INLINE inline QuadPair nibbles_of(const Nibbles& nibbles) {
  const __m256i both = load_256(nibbles[j]);
  return {_mm256_and_si256(both, each(15)), _mm256_and_si256(moved<4, 0>(both), each(15))};
}

// Moves bits [from, from + count) of each byte to `to`.
template <int from, int count, int to>
MR_INLINE inline __m256i bits_of(__m256i bytes) {
  return _mm256_and_si256(moved<from, to>(bytes), each(((1 << count) - 1) << to));
}
MR_INLINE inline __m256i joined(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }

template <int quad>
MR_INLINE inline __m256i three_of(const Threes& threes) {
  const auto v = [&](int i) MR_INLINE { return load_256(threes[i]); };
  if constexpr (quad < 6) return bits_of < quad % 2 == 0 ? 5 : 2, 3, 0 > (v(quad / 2));
  if constexpr (quad == 6) return joined(bits_of<0, 2, 1>(v(0)), bits_of<1, 1, 0>(v(1)));
  if constexpr (quad == 7) return joined(bits_of<0, 1, 2>(v(1)), bits_of<0, 2, 0>(v(2)));
}

template <int quad>
MR_INLINE inline __m256i five_of(const Fives& fives) {
  const auto v = [&](int i) MR_INLINE { return load_256(fives[i]); };
  if constexpr (quad < 5) return bits_of<3, 5, 0>(v(quad));
  if constexpr (quad == 5) return joined(bits_of<0, 3, 2>(v(0)), bits_of<1, 2, 0>(v(1)));
  if constexpr (quad == 6) return joined(bits_of<0, 3, 2>(v(2)), bits_of<1, 2, 0>(v(3)));
  if constexpr (quad == 7) {
    return joined(bits_of<0, 3, 2>(v(4)), joined(bits_of<0, 1, 1>(v(1)), bits_of<0, 1, 0>(v(3))));
  }
}

template <int quad>
MR_INLINE inline __m256i six_of(const Sixes& sixes) {
  const auto v = [&](int i) MR_INLINE { return load_256(sixes[quad / 4 * 3 + i]); };
  if constexpr (quad % 4 < 3) return bits_of<2, 6, 0>(v(quad % 4));
  if constexpr (quad % 4 == 3) {
    return joined(bits_of<0, 2, 4>(v(0)), joined(bits_of<0, 2, 2>(v(1)), bits_of<0, 2, 0>(v(2))));
  }
}

// Makes two's complement unsigned by flipping its top bit.
MR_INLINE inline QuadPair flipped(__m256i low, __m256i high, int top_bit) {
  return {_mm256_xor_si256(low, each(top_bit)), _mm256_xor_si256(high, each(top_bit))};
}

template <int j>
MR_INLINE inline QuadPair twos_of(const Twos& twos) {
  return {bits_of<2 * j, 2, 0>(load_256(twos[0])), bits_of<2 * j, 2, 0>(load_256(twos[1]))};
}

template <int j>
MR_INLINE inline QuadPair uneven_of(const Nibbles& nibbles) {
  const __m256i levels =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Values.data())));
  const QuadPair q = nibbles_of<j>(nibbles);
  return {_mm256_shuffle_epi8(levels, q.low), _mm256_shuffle_epi8(levels, q.high)};
}

// Twice the E2M1 numbers plus 12.
template <int j>
MR_INLINE inline QuadPair fp4_of(const Nibbles& nibbles) {
  const __m256i levels = _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24,  //
                                                                   12, 11, 10, 9, 8, 6, 4, 0));
  const QuadPair q = nibbles_of<j>(nibbles);
  return {_mm256_shuffle_epi8(levels, q.low), _mm256_shuffle_epi8(levels, q.high)};
}

struct SmallBlock {
  static constexpr int kGroups = 1, kScales = 1;
  static constexpr bool kMins = false, kSigned = false;
  static constexpr int kMost = 15, kZero = 0;  // largest value and zero point of unsigned q
};

struct UnpackQ8_0 : SmallBlock {
  using Block = PackedQ8_0;
  static constexpr bool kSigned = true;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int) {
    return {load_256(b.q[j]), load_256(b.q[j + 4])};
  }
};

struct UnpackQ4_0 : SmallBlock {
  using Block = PackedQ4_0;
  MR_INLINE static const Nibbles& nibbles(const Block& b, int) { return b.nibbles; }
  static constexpr int kZero = 8;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int) {
    return nibbles_of<j>(nibbles(b, 0));
  }
};

struct UnpackQ4_1 : SmallBlock {
  using Block = PackedQ4_1;
  MR_INLINE static const Nibbles& nibbles(const Block& b, int) { return b.nibbles; }
  static constexpr bool kMins = true;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int) {
    return nibbles_of<j>(nibbles(b, 0));
  }
};

struct UnpackQ5_0 : SmallBlock {
  using Block = PackedQ5_0;
  static constexpr int kMost = 31, kZero = 16;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int) {
    return flipped(five_of<j>(b.fives), five_of<j + 4>(b.fives), 16);
  }
};

struct UnpackQ5_1 : SmallBlock {
  using Block = PackedQ5_1;
  static constexpr bool kMins = true;
  static constexpr int kMost = 31;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int) {
    return flipped(five_of<j>(b.fives), five_of<j + 4>(b.fives), 16);
  }
};

struct UnpackIQ4_NL : SmallBlock {
  using Block = PackedQ4_0;
  static constexpr bool kSigned = true;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int) {
    return uneven_of<j>(b.nibbles);
  }
};

struct UnpackMXFP4 : SmallBlock {
  using Block = PackedMXFP4;
  static constexpr int kMost = 24, kZero = 12;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int) {
    return fp4_of<j>(b.nibbles);
  }
};

struct KBlock : SmallBlock {
  static constexpr int kGroups = 8;
};

struct UnpackIQ4_XS : KBlock {
  using Block = PackedIQ4_XS;
  static constexpr bool kSigned = true;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int g) {
    return uneven_of<j>(b.groups[g].nibbles);
  }
  MR_INLINE static __m256 scale(const Block& b, int g, int) { return load_s8(b.groups[g].scale); }
};

struct UnpackQ4_K : KBlock {
  using Block = PackedQ4_K;
  MR_INLINE static const Nibbles& nibbles(const Block& b, int g) { return b.groups[g].nibbles; }
  static constexpr bool kMins = true;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int g) {
    return nibbles_of<j>(nibbles(b, g));
  }
  MR_INLINE static __m256 scale(const Block& b, int g, int) { return load_u8(b.groups[g].scale); }
  MR_INLINE static __m256 min(const Block& b, int g, int) { return load_u8(b.groups[g].min); }
};

struct UnpackQ5_K : KBlock {
  using Block = PackedQ5_K;
  static constexpr bool kMins = true;
  static constexpr int kMost = 31;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int g) {
    return flipped(five_of<j>(b.groups[g].fives), five_of<j + 4>(b.groups[g].fives), 16);
  }
  MR_INLINE static __m256 scale(const Block& b, int g, int) { return load_u8(b.groups[g].scale); }
  MR_INLINE static __m256 min(const Block& b, int g, int) { return load_u8(b.groups[g].min); }
};

struct UnpackQ6_K : KBlock {
  using Block = PackedQ6_K;
  static constexpr int kScales = 2, kMost = 63, kZero = 32;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int g) {
    return flipped(six_of<j>(b.groups[g].sixes), six_of<j + 4>(b.groups[g].sixes), 32);
  }
  MR_INLINE static __m256 scale(const Block& b, int g, int s) { return load_s8(b.groups[g].scale[s]); }
};

struct UnpackQ3_K : KBlock {
  using Block = PackedQ3_K;
  static constexpr int kScales = 2, kMost = 7, kZero = 4;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int g) {
    return flipped(three_of<j>(b.groups[g].threes), three_of<j + 4>(b.groups[g].threes), 4);
  }
  MR_INLINE static __m256 scale(const Block& b, int g, int s) { return load_s8(b.groups[g].scale[s]); }
};

struct UnpackQ2_K : KBlock {
  using Block = PackedQ2_K;
  static constexpr int kScales = 2, kMost = 3;
  static constexpr bool kMins = true;
  template <int j>
  MR_INLINE static QuadPair quads(const Block& b, int g) {
    return twos_of<j>(b.groups[g].twos);
  }
  MR_INLINE static __m256 scale(const Block& b, int g, int s) { return nibbles(load_bytes(b.groups[g].scale_min[s])); }
  MR_INLINE static __m256 min(const Block& b, int g, int s) {
    return nibbles(_mm_srli_epi16(load_bytes(b.groups[g].scale_min[s]), 4));
  }
  MR_INLINE static __m256 nibbles(__m128i bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_and_si128(bytes, _mm_set1_epi8(15))));
  }
};

// The same form for all formats: w = scale * (q - zero) + min, in f32.
template <class Format>
struct Scales {
  const typename Format::Block& block;
  __m256 d, m;

  MR_INLINE explicit Scales(const typename Format::Block& from) : block(from), d(load_d(from)) {
    if constexpr (Format::kMins && Format::kGroups == 1) m = load_f16(from.m);
    if constexpr (Format::kMins && Format::kGroups > 1) m = _mm256_sub_ps(_mm256_setzero_ps(), load_f16(from.dmin));
  }
  MR_INLINE static __m256 load_d(const typename Format::Block& from) {
    if constexpr (requires { from.e; }) {
      return load_scales(from.e);
    } else {
      return load_f16(from.d);
    }
  }
  MR_INLINE __m256 scale(int g, int s) const {
    if constexpr (Format::kGroups == 1) return d;
    if constexpr (Format::kGroups > 1) return _mm256_mul_ps(d, Format::scale(block, g, s));
  }
  MR_INLINE __m256 min(int g, int s) const {
    if constexpr (Format::kGroups == 1) return m;
    if constexpr (Format::kGroups > 1) return _mm256_mul_ps(m, Format::min(block, g, s));
  }
};

#include "kernels/linear/rows8/formats-inl.h"
