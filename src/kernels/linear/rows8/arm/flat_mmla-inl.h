// Small batches with SMMLA. Included inside a target region, after the micro-kernel of panels.
//
// A group of 32 elements of eight rows of weights and eight of x takes 64 products. Each operand is used right after
// the zip or load that produces it: the core forwards a fresh result to its consumer, while a value that rests in a
// register must be read from the register file, which supplies only four operands per cycle.
#pragma once

#include "kernels/linear/rows8/arm/flat_x-inl.h"

// For unsigned weights.
MR_INLINE inline void usmmla(int32x4_t& sum, uint8x16_t w, int8x16_t x) {
  asm volatile("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
}
MR_INLINE inline int8x16_t load_pair(const int8_t (&from)[2][8]) {
  int8x16_t pair;
  asm volatile("ldr %q0, %1" : "=w"(pair) : "m"(from));
  return pair;
}

// Rearranges two quads of four rows into eight elements of rows 0 and 1, and of rows 2 and 3.
struct PairsOfRows {
  int8x16_t of[2];

  MR_INLINE PairsOfRows(int8x16_t first, int8x16_t second) {
    const int32x4_t low = vreinterpretq_s32_s8(first), high = vreinterpretq_s32_s8(second);
    of[0] = vreinterpretq_s8_s32(vzip1q_s32(low, high));
    of[1] = vreinterpretq_s8_s32(vzip2q_s32(low, high));
  }
};

struct MmlaFlat {
  static constexpr int kColumns = 4, kParts = 2;  // pairs of rows, of x and of weights

  template <class Format>
  using X = FlatX<Format, PairsOfX>;

  template <class Vector>
  struct Spread {
    Vector of[2];
    MR_INLINE explicit Spread(float32x4_t rows) requires std::is_same_v<Vector, float32x4_t>
        : of{vzip1q_f32(rows, rows), vzip2q_f32(rows, rows)} {}
    MR_INLINE explicit Spread(int32x4_t rows) requires std::is_same_v<Vector, int32x4_t>
        : of{vzip1q_s32(rows, rows), vzip2q_s32(rows, rows)} {}
  };

  // Multiplies four rows of weights with pairs of rows of x over the elements of scale `s` of group g.
  template <class Format, int pairs, int s>
  MR_INLINE static void multiply(const typename Format::Block& block, int g, int half,
                                 const typename X<Format>::Group& x, int32x4_t (*sums)[pairs]) {
    constexpr int kEights = 4 / Format::kScales;
    // Calls product(pair of rows, sum, eight elements of two rows of x); the first product initializes its sum.
    const auto eight_of_all = [&](auto eight, auto begins, auto product) MR_INLINE {
      unrolled<pairs>([&](auto j) MR_INLINE {
        const int8x16_t xs = load_pair(x.q[eight][j]);
        unrolled<2>([&](auto i) MR_INLINE {
          constexpr bool kNought = X<Format>::kWhole && !Format::kNibbles && Format::kOffset == 0;
          if constexpr (begins) sums[i][j] = kNought ? zero_sum() : load_sum(x.first[j]);
          product(i, sums[i][j], xs);
        });
      });
    };
    if constexpr (Format::kNibbles) {
      const auto& nibbles = Format::nibbles(block, g);
      unrolled<2>([&](auto i) MR_INLINE {
        const PairsOfRows w(vreinterpretq_s8_u8(load_half(nibbles[2 * i], half)),
                            vreinterpretq_s8_u8(load_half(nibbles[2 * i + 1], half)));
        eight_of_all(std::integral_constant<int, i + 2>(), std::bool_constant<i == 0>(),
                     [&](auto p, int32x4_t& sum, int8x16_t q) MR_INLINE { smmla(sum, w.of[p], q); });
        const uint8x16_t low[2] = {vshlq_n_u8(vreinterpretq_u8_s8(w.of[0]), 4),
                                   vshlq_n_u8(vreinterpretq_u8_s8(w.of[1]), 4)};
        eight_of_all(i, std::false_type(),
                     [&](auto p, int32x4_t& sum, int8x16_t q) MR_INLINE { usmmla(sum, low[p], q); });
      });
    } else {
      Weights w;
      Format::weights(block, g, half, w);
      unrolled<kEights>([&](auto i) MR_INLINE {
        constexpr int eight = s * kEights + i;
        const PairsOfRows rows(w[2 * eight], w[2 * eight + 1]);
        eight_of_all(std::integral_constant<int, eight>(), std::bool_constant<i == 0>(),
                     [&](auto p, int32x4_t& sum, int8x16_t q) MR_INLINE { smmla(sum, rows.of[p], q); });
      });
    }
  }

  template <int pairs>
  MR_INLINE static void write(const LinearArgs& args, const float32x4_t (&sums)[4][pairs], const FlatPlace& place) {
    write_pairs<pairs>(args, sums, place.strip, place.row, place.rows, place.fresh);
  }
};
