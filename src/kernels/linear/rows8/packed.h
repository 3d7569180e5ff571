// Quantized weights repacked for dot instructions: eight rows side by side, nothing wider than in the file.
//
// A block is the format's own block of each of eight rows, a group is 32 elements of them. Within a group elements go
// in quads (four neighbours along k): first quad 0 of rows 0..7, then quad 1, ... so that a 16-byte load holds one quad
// of four rows, and a dot instruction with the matching quad of x gives four sums. Bits that do not fill bytes lie in
// planes:
//   nibbles[j][row]  quad j in the low, quad j + 4 in the high halves
//   twos[p][row]     quad 4 p + f in bits 2 f and 2 f + 1
//   ones[row]        quad j in bit j
// Formats with a zero point (q - 8 and so on) store two's complement, so that a shift to the top of the byte gives a
// signed number; 5-bit ones do so even where their q is unsigned, since 8 q would not fit a signed byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

inline constexpr int kPackedRows = 8;

using Quad = uint8_t[4];
using HalfOfRow = uint16_t[kPackedRows];  // an f16 per row
using Nibbles = Quad[4][kPackedRows];
using Twos = Quad[2][kPackedRows];
using Ones = Quad[kPackedRows];

struct PackedQ8_0 {
  HalfOfRow d;
  int8_t q[8][kPackedRows][4];
};

struct PackedQ4_0 {  // also IQ4_NL, whose nibbles are indices
  HalfOfRow d;
  Nibbles nibbles;
};

struct PackedQ4_1 {
  HalfOfRow d, m;
  Nibbles nibbles;
};

struct PackedQ5_0 {
  HalfOfRow d;
  Ones ones;
  Nibbles nibbles;
};

struct PackedQ5_1 {
  HalfOfRow d, m;
  Ones ones;
  Nibbles nibbles;
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
    Ones ones;
    Nibbles nibbles;
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
    int8_t scale[2][kPackedRows];  // of the first and the second 16 elements
    Twos twos;                     // top bits
    Nibbles nibbles;
  } groups[8];
};

struct PackedQ3_K {
  HalfOfRow d;
  struct Group {
    int8_t scale[2][kPackedRows];
    Ones ones;  // top bit
    Twos twos;
  } groups[8];
};

struct PackedQ2_K {
  HalfOfRow d, dmin;
  struct Group {
    uint8_t scale_min[2][kPackedRows];  // scale in the low, min in the high nibble
    Twos twos;
  } groups[8];
};

static_assert(sizeof(PackedQ8_0) == 8 * 34 && sizeof(PackedQ4_0) == 8 * 18 && sizeof(PackedQ4_1) == 8 * 20);
static_assert(sizeof(PackedQ5_0) == 8 * 22 && sizeof(PackedQ5_1) == 8 * 24);
static_assert(sizeof(PackedQ6_K) == 8 * 210 && sizeof(PackedQ2_K) == 8 * 84);
// Scales of 6 bits are widened to bytes: 1.5 to 3.6 % more than the file.
static_assert(sizeof(PackedQ4_K) == 8 * 148 && sizeof(PackedQ5_K) == 8 * 180);
static_assert(sizeof(PackedIQ4_XS) == 8 * 138 && sizeof(PackedQ3_K) == 8 * 114);

// Bytes of one block of eight rows; 0 for formats that are not packed.
size_t packed_block_bytes(DType format);

}  // namespace millrace
