// Copies one row's block from the file's layout into a packed block, four elements at a time as the bytes of a word.
#pragma once

#include <array>
#include <cstring>

#include "kernels/linear/rows8/packed.h"
#include "tensor/blocks.h"
#include "tensor/quantize.h"

namespace millrace {

using Quads = std::array<uint32_t, 8>;  // 32 elements as the file's unsigned q

inline uint32_t load_quad(const void* p) {
  uint32_t quad;
  std::memcpy(&quad, p, sizeof quad);
  return quad;
}
inline void store_quad(Quad& to, uint32_t quad) { std::memcpy(to, &quad, sizeof quad); }

// `bits` in each byte.
constexpr uint32_t each_byte(uint32_t bits) { return bits * 0x01010101u; }

inline Quads small_nibbles(const uint8_t* qs) {  // 32-element blocks: element e + 16 is the high nibble of element e
  Quads q;
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t both = load_quad(qs + 4 * j);
    q[j] = both & each_byte(15);
    q[j + 4] = both >> 4 & each_byte(15);
  }
  return q;
}

// Fields of `bits` bits at `shift` in each of 32 consecutive bytes: the element order of K-blocks.
inline Quads byte_fields(const uint8_t* bytes, int shift, uint32_t bits) {
  Quads q;
  for (size_t j = 0; j < 8; ++j) q[j] = load_quad(bytes + 4 * j) >> shift & each_byte((1u << bits) - 1);
  return q;
}

inline Quads joined(Quads low, const Quads& high, int shift) {
  for (size_t j = 0; j < 8; ++j) low[j] |= high[j] << shift;
  return low;
}

inline Quads fifth_bits(const uint8_t* qh) {  // bit e of a word -> bit 0 of byte e
  const uint32_t word = load_quad(qh);
  Quads q;
  for (uint32_t j = 0; j < 8; ++j) q[j] = (word >> (4 * j) & 15) * 0x00204081u & each_byte(1);
  return q;
}

inline Quads with_sign(Quads q, uint32_t zero_point) {  // q - zero_point in two's complement
  for (auto& quad : q) quad ^= each_byte(zero_point);
  return q;
}

inline void put(Nibbles& to, int row, const Quads& q) {
  for (size_t j = 0; j < 4; ++j) store_quad(to[j][row], (q[j] & each_byte(15)) | (q[j + 4] & each_byte(15)) << 4);
}
// For nibbles that are numbers, not table indices.
inline void put_q4(Nibbles& to, int row, Quads q) {
  for (size_t j = 0; j < 4; ++j) {
    q[j] ^= each_byte(kNibbleFlip & 15);
    q[j + 4] ^= each_byte(kNibbleFlip >> 4);
  }
  put(to, row, q);
}
inline void put(Twos& to, int row, const Quads& q) {
  for (size_t p = 0; p < 2; ++p) {
    uint32_t word = 0;
    for (size_t f = 0; f < 4; ++f) word |= (q[4 * p + f] & each_byte(3)) << (2 * f);
    store_quad(to[p][row], word);
  }
}
// Moves bits [low, low + count) of each byte to `to`.
inline uint32_t field(uint32_t quad, int low, int count, int to) {
  return (quad >> low & each_byte((1u << count) - 1)) << to;
}
inline void put(Threes& to, int row, const Quads& q) {
  const uint32_t low[3] = {field(q[6], 1, 2, 0), field(q[6], 0, 1, 1) | field(q[7], 2, 1, 0), field(q[7], 0, 2, 0)};
  for (size_t i = 0; i < 3; ++i)
    store_quad(to[i][row], field(q[2 * i], 0, 3, 5) | field(q[2 * i + 1], 0, 3, 2) | low[i]);
}
inline void put(Fives& to, int row, const Quads& q) {
  const uint32_t low[5] = {field(q[5], 2, 3, 0), field(q[5], 0, 2, 1) | field(q[7], 1, 1, 0), field(q[6], 2, 3, 0),
                           field(q[6], 0, 2, 1) | field(q[7], 0, 1, 0), field(q[7], 2, 3, 0)};
  for (size_t i = 0; i < 5; ++i) store_quad(to[i][row], field(q[i], 0, 5, 3) | low[i]);
}
inline void put(Sixes& to, int row, const Quads& q) {
  for (size_t i = 0; i < 6; ++i) {
    const uint32_t whole = q[i / 3 * 4 + i % 3], split = q[i / 3 * 4 + 3];
    store_quad(to[i][row], field(whole, 0, 6, 2) | field(split, 4 - 2 * static_cast<int>(i % 3), 2, 0));
  }
}

inline void pack_row(const BlockQ8_0& b, PackedQ8_0& to, int row) {
  to.d[row] = b.d;
  for (size_t j = 0; j < 8; ++j) std::memcpy(to.q[j][row], b.qs + 4 * j, 4);
}
inline void pack_row(const BlockQ4_0& b, PackedQ4_0& to, int row) {
  to.d[row] = b.d;
  put_q4(to.nibbles, row, small_nibbles(b.qs));
}
inline void pack_row(const BlockIQ4_NL& b, PackedQ4_0& to, int row) {
  to.d[row] = b.d;
  put(to.nibbles, row, small_nibbles(b.qs));
}
inline void pack_row(const BlockMXFP4& b, PackedMXFP4& to, int row) {
  to.e[row] = b.e;
  put(to.nibbles, row, small_nibbles(b.qs));
}
inline void pack_row(const BlockF8_E4M3& b, PackedQ8_0& to, int row) {
  float numbers[32];
  BlockQ8_0 rounded;
  for (int e = 0; e < 32; ++e) numbers[e] = b.d * e4m3_to_f32(b.qs[e]);
  quantize_row(DType::Q8_0, numbers, reinterpret_cast<std::byte*>(&rounded), 32);
  pack_row(rounded, to, row);
}
inline void pack_row(const BlockQ4_1& b, PackedQ4_1& to, int row) {
  to.d[row] = b.d;
  to.m[row] = b.m;
  put_q4(to.nibbles, row, small_nibbles(b.qs));
}
inline void pack_row(const BlockQ5_0& b, PackedQ5_0& to, int row) {
  to.d[row] = b.d;
  put(to.fives, row, with_sign(joined(small_nibbles(b.qs), fifth_bits(b.qh), 4), 16));
}
inline void pack_row(const BlockQ5_1& b, PackedQ5_1& to, int row) {
  to.d[row] = b.d;
  to.m[row] = b.m;
  put(to.fives, row, with_sign(joined(small_nibbles(b.qs), fifth_bits(b.qh), 4), 16));
}

inline void pack_row(const BlockQ4_K& b, PackedQ4_K& to, int row) {
  to.d[row] = b.d;
  to.dmin[row] = b.dmin;
  for (int g = 0; g < 8; ++g) {
    auto& group = to.groups[g];
    const ScaleMin packed = k_scale_min(b.scales, g);
    group.scale[row] = packed.scale;
    group.min[row] = packed.min;
    put_q4(group.nibbles, row, byte_fields(b.qs + g / 2 * 32, g % 2 * 4, 4));
  }
}
inline void pack_row(const BlockQ5_K& b, PackedQ5_K& to, int row) {
  to.d[row] = b.d;
  to.dmin[row] = b.dmin;
  for (int g = 0; g < 8; ++g) {
    auto& group = to.groups[g];
    const ScaleMin packed = k_scale_min(b.scales, g);
    group.scale[row] = packed.scale;
    group.min[row] = packed.min;
    const Quads low = byte_fields(b.qs + g / 2 * 32, g % 2 * 4, 4);
    put(group.fives, row, with_sign(joined(low, byte_fields(b.qh, g, 1), 4), 16));
  }
}
inline void pack_row(const BlockIQ4_XS& b, PackedIQ4_XS& to, int row) {
  to.d[row] = b.d;
  for (int g = 0; g < 8; ++g) {
    to.groups[g].scale[row] = static_cast<int8_t>(iq4_xs_scale(b, g));
    put(to.groups[g].nibbles, row, small_nibbles(b.qs + g * 16));
  }
}
inline void pack_row(const BlockQ6_K& b, PackedQ6_K& to, int row) {
  to.d[row] = b.d;
  for (int g = 0; g < 8; ++g) {
    auto& group = to.groups[g];
    for (int half = 0; half < 2; ++half) group.scale[half][row] = b.scales[2 * g + half];
    const Quads low = byte_fields(b.ql + g / 4 * 64 + g % 2 * 32, g / 2 % 2 * 4, 4);
    put(group.sixes, row, with_sign(joined(low, byte_fields(b.qh + g / 4 * 32, g % 4 * 2, 2), 4), 32));
  }
}
inline void pack_row(const BlockQ3_K& b, PackedQ3_K& to, int row) {
  to.d[row] = b.d;
  for (int g = 0; g < 8; ++g) {
    auto& group = to.groups[g];
    for (int half = 0; half < 2; ++half)
      group.scale[half][row] = static_cast<int8_t>(q3_k_scale(b.scales, 2 * g + half));
    const Quads low = byte_fields(b.qs + g / 4 * 32, g % 4 * 2, 2);
    put(group.threes, row, with_sign(joined(low, byte_fields(b.hmask, g, 1), 2), 4));
  }
}
inline void pack_row(const BlockQ2_K& b, PackedQ2_K& to, int row) {
  to.d[row] = b.d;
  to.dmin[row] = b.dmin;
  for (int g = 0; g < 8; ++g) {
    auto& group = to.groups[g];
    for (int half = 0; half < 2; ++half) group.scale_min[half][row] = b.scales[2 * g + half];
    put(group.twos, row, byte_fields(b.qs + g / 4 * 32, g % 4 * 2, 2));
  }
}

}  // namespace millrace
