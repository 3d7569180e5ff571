// The quantized blocks of GGUF, byte for byte as in the file, and a block for the FP8 weights of Hugging Face folders.
// Half-precision fields stay bits (tensor/half.h).
//
// Small blocks hold 32 elements: nibble byte j has element j in its low half and element j + 16 in its high half.
// K-blocks hold 256 elements in groups of 16 or 32. Each group has a small integer scale, and in some formats a
// minimum, in units of one or two halves per block. Below, e is an element's index in its block.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace millrace {

struct BlockQ8_0 {  // d * q
  static constexpr int kElements = 32;
  uint16_t d;
  int8_t qs[32];
};

struct BlockQ4_0 {  // d * (q - 8)
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t qs[16];
};

struct BlockQ4_1 {  // d * q + m
  static constexpr int kElements = 32;
  uint16_t d, m;
  uint8_t qs[16];
};

struct BlockQ5_0 {  // d * (q - 16); bit e of the little-endian word qh is the fifth bit of element e
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ5_1 {  // d * q + m; qh as in Q5_0
  static constexpr int kElements = 32;
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockIQ4_NL {  // d * kIq4Values[q]
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t qs[16];
};

struct BlockMXFP4 {  // e8m0_half(e) * kFp4Values[q]
  static constexpr int kElements = 32;
  uint8_t e;  // E8M0: the scale is 2^(e - 127)
  uint8_t qs[16];
};

struct BlockF8_E4M3 {  // d * e4m3_to_f32(q); the loader copies the scale of a tile of the file into each of its blocks
  static constexpr int kElements = 32;
  float d;
  uint8_t qs[32];
};

struct BlockQ2_K {  // d * scale * q - dmin * min
  static constexpr int kElements = 256;
  uint8_t scales[16];  // group e / 16: scale in the low nibble, min in the high one
  uint8_t qs[64];      // byte e / 128 * 32 + e % 32, two bits from 2 * (e / 32 % 4) on
  uint16_t d, dmin;
};

struct BlockQ3_K {  // d * scale * (q - 4)
  static constexpr int kElements = 256;
  uint8_t hmask[32];   // third bit of q: bit e / 32 of byte e % 32
  uint8_t qs[64];      // low two bits, as in Q2_K
  uint8_t scales[12];  // sixteen 6-bit scales: see q3_k_scale
  uint16_t d;
};

struct BlockQ4_K {  // d * scale * q - dmin * min
  static constexpr int kElements = 256;
  uint16_t d, dmin;
  uint8_t scales[12];  // eight 6-bit scales and mins, group e / 32: see k_scale_min
  uint8_t qs[128];     // byte e / 64 * 32 + e % 32, nibble e / 32 % 2
};

struct BlockQ5_K {  // d * scale * q - dmin * min
  static constexpr int kElements = 256;
  uint16_t d, dmin;
  uint8_t scales[12];  // as in Q4_K
  uint8_t qh[32];      // fifth bit: bit e / 32 of byte e % 32
  uint8_t qs[128];     // as in Q4_K
};

struct BlockQ6_K {  // d * scale * (q - 32)
  static constexpr int kElements = 256;
  uint8_t ql[128];    // low nibbles: byte e / 128 * 64 + e % 64, nibble e / 64 % 2
  uint8_t qh[64];     // high two bits: byte e / 128 * 32 + e % 32, from bit 2 * (e / 32 % 4) on
  int8_t scales[16];  // group e / 16
  uint16_t d;
};

struct BlockIQ4_XS {  // d * (scale - 32) * kIq4Values[q]
  static constexpr int kElements = 256;
  uint16_t d;
  uint16_t scales_h;    // high two bits of the scale of group e / 32
  uint8_t scales_l[4];  // low four bits
  uint8_t qs[128];      // 16 bytes per group of 32, each laid out like a small block
};

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockMXFP4) == 17 && sizeof(BlockF8_E4M3) == 36);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_XS) == 136);

// The non-uniform levels of IQ4_NL and IQ4_XS: dense near zero, where most weights are.
inline constexpr std::array<int8_t, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10,
                                                   1,    13,   25,  38,  53,  69,  89,  113};

// The E2M1 numbers 0, 0.5, 1, 1.5, 2, 3, 4, 6 of MXFP4 and their negatives, times two, so that they are integers.
inline constexpr std::array<int8_t, 16> kFp4Values{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of the E8M0 scale 2^(e - 127): the factor of kFp4Values. 2^-128 and 2^-127 are subnormal.
inline float e8m0_half(uint8_t e) { return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (uint32_t{e} - 1) << 23); }

// E4M3 without infinities: sign, four exponent bits with a bias of 7, three mantissa bits; 0x7f and 0xff are NaN.
inline float e4m3_to_f32(uint8_t q) {
  const uint32_t sign = uint32_t{q} >> 7 << 31, magnitude = q & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) return std::bit_cast<float>(std::bit_cast<uint32_t>(float(magnitude) * 0x1p-9f) | sign);
  return std::bit_cast<float>(sign | ((magnitude << 20) + ((127 - 7) << 23)));
}

struct ScaleMin {
  uint8_t scale, min;
};

// Q4_K and Q5_K: bytes 0-3 hold the scales and 4-7 the mins of groups 0-3 in their low six bits; bytes 8-11 the low
// nibbles of groups 4-7 (scale low, min high), whose top two bits sit in the top bits of bytes 0-3 and 4-7.
inline ScaleMin k_scale_min(const uint8_t (&packed)[12], int group) {
  if (group < 4) return {static_cast<uint8_t>(packed[group] & 63), static_cast<uint8_t>(packed[group + 4] & 63)};
  const int g = group - 4;
  return {static_cast<uint8_t>((packed[g + 8] & 15) | packed[g] >> 6 << 4),
          static_cast<uint8_t>(packed[g + 8] >> 4 | packed[g + 4] >> 6 << 4)};
}

// Q3_K: low nibbles of scales 0-7 and 8-15 share bytes 0-7; bytes 8-11 hold the top two bits, four scales to a byte.
inline int q3_k_scale(const uint8_t (&packed)[12], int group) {
  const int low = packed[group % 8] >> (group / 8 * 4) & 15;
  const int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

inline int iq4_xs_scale(const BlockIQ4_XS& block, int group) {
  const int low = block.scales_l[group / 2] >> (group % 2 * 4) & 15;
  const int high = block.scales_h >> (group * 2) & 3;
  return (low | high << 4) - 32;
}

}  // namespace millrace
