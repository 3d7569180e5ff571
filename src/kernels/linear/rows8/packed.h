// Quantized weights repacked for dot-product instructions: eight rows interleaved, with the bit width of the file.
//
// A packed block holds the format's block of eight rows; a group is 32 elements of each row. A quad is four consecutive
// elements along k. A group stores quad 0 of rows 0..7, then quad 1, and so on. A 16-byte load thus holds one quad of
// four rows, and a dot-product instruction with the matching quad of x updates four sums. Elements narrower than a byte
// share bytes in a way that is cheap to unpack. Below, i is the index of byte [i][row], and bits are listed from high
// to low:
//   Nibbles   quad i + 4, quad i
//   Twos      quads 4 i + 3, 4 i + 2, 4 i + 1, 4 i
// The other types hold whole elements in their high bits and pieces of the remaining elements in their low bits. q:b
// denotes bits b of quad q:
//   Threes    [0] 0, 1, 6:21    [1] 2, 3, 6:0, 7:2    [2] 4, 5, 7:10
//   Fives     [0] 0, 5:432    [1] 1, 5:10, 7:1    [2] 2, 6:432    [3] 3, 6:10, 7:0    [4] 4, 7:432
//   Sixes     [0] 0, 3:54    [1] 1, 3:32    [2] 2, 3:10    and [3] to [5] hold quads 4 to 7 in the same way
// Formats with a zero point (q - 16 etc.), except nibbles, store two's complement, so that an element in the high bits
// of its byte is a signed number times a power of two. All 5-bit formats do so, even those with unsigned q: 8 q would
// not fit a signed byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

inline constexpr int kPackedRows = 8;

// Nibbles of Q4_0, Q4_1 and Q4_K store the file's unsigned q. On aarch64, which multiplies signed bytes, the high
// nibble is two's complement (q - 8). The whole byte can then be multiplied without unpacking, with a correction for
// the low nibble (arm/packed_x-inl.h).
#if defined(__aarch64__)
inline constexpr uint32_t kNibbleFlip = 0x80;
#else
inline constexpr uint32_t kNibbleFlip = 0;
#endif

using Quad = uint8_t[4];
using HalfOfRow = uint16_t[kPackedRows];  // one f16 per row
using Nibbles = Quad[4][kPackedRows];
using Twos = Quad[2][kPackedRows];
using Threes = Quad[3][kPackedRows];
using Fives = Quad[5][kPackedRows];
using Sixes = Quad[6][kPackedRows];

struct PackedQ8_0 {  // also F8_E4M3, rounded to int8: integer dot products cannot take its exponents
  HalfOfRow d;
  int8_t q[8][kPackedRows][4];
};

struct PackedQ4_0 {  // also IQ4_NL, whose nibbles are table indices
  HalfOfRow d;
  Nibbles nibbles;
};

struct PackedMXFP4 {
  uint8_t e[kPackedRows];  // exponents of the scales
  Nibbles nibbles;         // indices of kFp4Values
};

struct PackedQ4_1 {
  HalfOfRow d, m;
  Nibbles nibbles;
};

struct PackedQ5_0 {
  HalfOfRow d;
  Fives fives;
};

struct PackedQ5_1 {
  HalfOfRow d, m;
  Fives fives;
};

struct PackedQ4_K {
  HalfOfRow d, dmin;
  struct Group {
    uint8_t scale[kPackedRows], min[kPackedRows];
    Nibbles nibbles;
  } groups[8];
};

struct PackedQ5_K {
  HalfOfRow d, dmin;
  struct Group {
    uint8_t scale[kPackedRows], min[kPackedRows];
    Fives fives;
  } groups[8];
};

struct PackedIQ4_XS {
  HalfOfRow d;
  struct Group {
    int8_t scale[kPackedRows];
    Nibbles nibbles;
  } groups[8];
};

struct PackedQ6_K {
  HalfOfRow d;
  struct Group {
    int8_t scale[2][kPackedRows];  // of elements 0..15 and 16..31
    Sixes sixes;
  } groups[8];
};

struct PackedQ3_K {
  HalfOfRow d;
  struct Group {
    int8_t scale[2][kPackedRows];
    Threes threes;
  } groups[8];
};

struct PackedQ2_K {
  HalfOfRow d, dmin;
  struct Group {
    uint8_t scale_min[2][kPackedRows];  // low nibble: scale, high nibble: min
    Twos twos;
  } groups[8];
};

static_assert(sizeof(PackedQ8_0) == 8 * 34 && sizeof(PackedQ4_0) == 8 * 18 && sizeof(PackedQ4_1) == 8 * 20);
static_assert(sizeof(PackedMXFP4) == 8 * 17);
static_assert(sizeof(PackedQ5_0) == 8 * 22 && sizeof(PackedQ5_1) == 8 * 24);
static_assert(sizeof(PackedQ6_K) == 8 * 210 && sizeof(PackedQ2_K) == 8 * 84);
// Six-bit scales are widened to bytes, which costs 1.5 to 3.6 % more memory than the file.
static_assert(sizeof(PackedQ4_K) == 8 * 148 && sizeof(PackedQ5_K) == 8 * 180);
static_assert(sizeof(PackedIQ4_XS) == 8 * 138 && sizeof(PackedQ3_K) == 8 * 114);

// Bytes of one block of eight rows; 0 if the layout does not support the format.
size_t packed_block_bytes(DType format);

}  // namespace millrace
