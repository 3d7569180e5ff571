// Small batches with SDOT, for machines without SMMLA. Included inside a target region, after Dot.
//
// A group of 32 elements of eight rows of weights and eight of x takes 128 products. Weights are unpacked once per tile
// of eight rows of x.
#pragma once

#include "kernels/linear/rows8/arm/flat_x-inl.h"

struct DotFlat {
  static constexpr int kColumns = 8, kParts = 1;  // columns are rows of x, each with four rows of weights
  static constexpr int kTogether = 4;             // rows whose products are interleaved, to hide the latency of a sum

  template <class Format>
  using X = FlatX<Format, RowsOfX>;

  template <class Vector>
  struct Spread {
    Vector of[1];
    MR_INLINE explicit Spread(Vector rows) : of{rows} {}
  };

  // Multiplies four quads of weights with 16 elements of each row of x. `begins`: these are the first products of each
  // sum.
  template <bool begins, int rows, class Begin>
  MR_INLINE static void sixteen(const int8x16_t (&w)[4], const int8_t (&q)[8][16], int32x4_t* sums, Begin begin) {
    unrolled<(rows + kTogether - 1) / kTogether>([&](auto tile) MR_INLINE {
      constexpr int first = tile * kTogether, count = std::min(kTogether, rows - first);
      int8x16_t xs[count];
      unrolled<count>([&](auto r) MR_INLINE {
        xs[r] = load_sixteen(q[first + r]);
        if constexpr (begins) sums[first + r] = begin(first + r);
      });
      unrolled<4>([&](auto j) MR_INLINE {
        unrolled<count>([&](auto r) MR_INLINE { Dot::quad<j>(sums[first + r], w[j], xs[r]); });
      });
    });
  }

  // Multiplies four rows of weights with rows of x over the elements of scale `s` of group g.
  template <class Format, int rows, int s>
  MR_INLINE static void multiply(const typename Format::Block& block, int g, int half,
                                 const typename X<Format>::Group& x, int32x4_t (*sums)[rows]) {
    const auto begin = [&](int row) MR_INLINE {
      constexpr bool kNought = X<Format>::kWhole && !Format::kNibbles && Format::kOffset == 0;
      return kNought ? zero_sum() : load_sum(x.first[row]);
    };
    if constexpr (Format::kNibbles) {
      const auto& nibbles = Format::nibbles(block, g);
      int8x16_t w[4];
      unrolled<4>([&](auto j) MR_INLINE { w[j] = vreinterpretq_s8_u8(load_half(nibbles[j], half)); });
      sixteen<true, rows>(w, x.q[1], *sums, begin);
      // Sixteen times the low nibbles, made signed by subtracting 8.
      unrolled<4>([&](auto j) MR_INLINE { w[j] = veorq_s8(vshlq_n_s8(w[j], 4), vdupq_n_s8(-128)); });
      sixteen<false, rows>(w, x.q[0], *sums, begin);
    } else {
      Weights w;
      Format::weights(block, g, half, w);
      constexpr int kSixteens = 2 / Format::kScales;
      unrolled<kSixteens>([&](auto i) MR_INLINE {
        constexpr int part = s * kSixteens + i;
        const int8x16_t quads[4] = {w[4 * part], w[4 * part + 1], w[4 * part + 2], w[4 * part + 3]};
        sixteen<i == 0, rows>(quads, x.q[part], *sums, begin);
      });
    }
  }

  template <int rows>
  MR_INLINE static void write(const LinearArgs& args, const float32x4_t (&sums)[2][rows], const FlatPlace& place) {
    write_tile<rows>(args, place.strip, place.row, place.rows, place.fresh,
                     [&](auto r, auto half) MR_INLINE { return sums[half][r]; });
  }

 private:
  MR_INLINE static int8x16_t load_sixteen(const int8_t (&from)[16]) {
    int8x16_t x;
    asm volatile("ldr %q0, %1" : "=w"(x) : "m"(from));
    return x;
  }
};
