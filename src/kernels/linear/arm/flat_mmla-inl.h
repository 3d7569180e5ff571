// Small batches with SMMLA: packed weights from memory through registers, up to eight rows of x at a time. Included
// inside a target region, after the micro-kernel of panels.
//
// Products are 64 for 32 elements of eight rows of weights and eight of x; what bounds it is all that comes between
// them. So weights are multiplied as they come out of their zips, never stored; four rows of them at a time, so that
// sums stay in registers; nibbles are not taken apart (packed_x-inl.h); and whatever can be is loaded right in front of
// the product that takes it: an operand that is on its way is caught when it arrives, one that lies in its register has
// to be read from there, which only four can in a cycle.
#pragma once

#include "kernels/linear/arm/flat_x-inl.h"

constexpr int64_t kFlatStretch = 64;  // groups: as much of x as stays in the L1 cache
// How much further than a strip ahead weights are fetched. Into the L2 cache: the L1 cache waits for too few lines at a
// time, and gets 10 GB/s from memory whatever the number of rows.
constexpr int64_t kFlatAhead = 4096;

// Unsigned weights.
MR_INLINE inline void usmmla(int32x4_t& sum, uint8x16_t w, int8x16_t x) {
  asm volatile("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
}
MR_INLINE inline int8x16_t load_pair(const int8_t (&from)[2][8]) {
  int8x16_t pair;
  asm volatile("ldr %q0, %1" : "=w"(pair) : "m"(from));
  return pair;
}

// Two quads of four rows each as the same eight elements of rows 0 and 1, and of rows 2 and 3.
struct PairsOfRows {
  int8x16_t of[2];

  MR_INLINE PairsOfRows(int8x16_t first, int8x16_t second) {
    const int32x4_t low = vreinterpretq_s32_s8(first), high = vreinterpretq_s32_s8(second);
    of[0] = vreinterpretq_s8_s32(vzip1q_s32(low, high));
    of[1] = vreinterpretq_s8_s32(vzip2q_s32(low, high));
  }
};

// Four rows of something as the pairs that sums come in.
struct FlatPairs {
  float32x4_t of[2];
  MR_INLINE explicit FlatPairs(float32x4_t rows) : of{vzip1q_f32(rows, rows), vzip2q_f32(rows, rows)} {}
};
struct FlatIntegers {
  int32x4_t of[2];
  MR_INLINE explicit FlatIntegers(int32x4_t rows) : of{vzip1q_s32(rows, rows), vzip2q_s32(rows, rows)} {}
};

// Four rows of weights with pairs of rows of x: what the elements of scale `s` of group g add up to.
template <class Format, int pairs, int s>
MR_INLINE inline void multiply_run(const typename Format::Block& block, int g, int half,
                                   const typename FlatX<Format>::Group& x, int32x4_t (*sums)[pairs]) {
  constexpr int kEights = 4 / Format::kScales;
  // multiply(pair of rows, sum, eight elements of two rows of x); the first of a sum's products begins it.
  const auto eight_of_all = [&](auto eight, auto begins, auto multiply) MR_INLINE {
    unrolled<pairs>([&](auto j) MR_INLINE {
      const int8x16_t xs = load_pair(x.q[eight][j]);
      unrolled<2>([&](auto i) MR_INLINE {
        constexpr bool kNought = FlatX<Format>::kWhole && !Format::kNibbles && Format::kOffset == 0;
        if constexpr (begins) sums[i][j] = kNought ? zero_sum() : load_sum(x.first[j]);
        multiply(i, sums[i][j], xs);
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

// Sums of one step of x, scaled: [pair of rows of weights][pair of rows of x].
//
// Small blocks: sums are multiplied as they are, with kIntegerShift still in them. What that adds up to follows from
// the scales alone, and is taken off at the end.
template <class Format, int halves, int pairs>
struct FlatTotals {
  float32x4_t total[2 * halves][pairs], scales[halves];

  MR_INLINE FlatTotals() {
    unrolled<halves>([&](auto h) MR_INLINE { scales[h] = vdupq_n_f32(0); });
    unrolled<2 * halves>([&](auto i) MR_INLINE {
      unrolled<pairs>([&](auto j) MR_INLINE { total[i][j] = vreinterpretq_f32_s32(zero_sum()); });
    });
  }
  template <int s>
  MR_INLINE void add(const typename Format::Block& block, int, int half, int h, const typename FlatX<Format>::Group& x,
                     const int32x4_t (&sums)[2][pairs]) {
    const float32x4_t own = load_f16(block.d, half);
    scales[h] = vaddq_f32(scales[h], own);
    const FlatPairs scale(own);
    unrolled<pairs>([&](auto j) MR_INLINE {
      unrolled<2>([&](auto i) MR_INLINE {
        float32x4_t& to = total[2 * h + i][j];
        to = vfmaq_f32(to, vreinterpretq_f32_s32(sums[i][j]), scale.of[i]);
      });
    });
    if constexpr (Format::kMins) {
      const FlatPairs min(load_f16(block.m, half));
      unrolled<pairs>([&](auto j) MR_INLINE {
        const float32x4_t sum = vld1q_f32(x.sum[0][j]);
        unrolled<2>([&](auto i) MR_INLINE { total[2 * h + i][j] = vfmaq_f32(total[2 * h + i][j], min.of[i], sum); });
      });
    }
  }
  MR_INLINE void settle(const typename Format::Block&, int, int h, const FlatX<Format>& x,
                        float32x4_t (*acc)[pairs]) const {
    const FlatPairs shift(vmulq_n_f32(scales[h], -kIntegerShift));
    unrolled<pairs>([&](auto j) MR_INLINE {
      const float32x4_t step = vld1q_f32(x.step[j]);
      unrolled<2>([&](auto i) MR_INLINE {
        acc[2 * h + i][j] = vfmaq_f32(acc[2 * h + i][j], vaddq_f32(total[2 * h + i][j], shift.of[i]), step);
      });
    });
  }
};

// K-blocks: their scales are integers, and so is everything until the end of a block.
template <class Format, int halves, int pairs>
requires(FlatX<Format>::kWhole) struct FlatTotals<Format, halves, pairs> {
  int32x4_t total[2 * halves][pairs], mins[2 * halves][pairs];

  MR_INLINE FlatTotals() {
    unrolled<2 * halves>([&](auto i) MR_INLINE {
      unrolled<pairs>([&](auto j) MR_INLINE {
        total[i][j] = zero_sum();
        if constexpr (Format::kMins) mins[i][j] = zero_sum();
      });
    });
  }
  template <int s>
  MR_INLINE void add(const typename Format::Block& block, int g, int half, int h,
                     const typename FlatX<Format>::Group& x, const int32x4_t (&sums)[2][pairs]) {
    int32x4_t of_rows[2];
    Format::scales(block, g, s, of_rows);
    const FlatIntegers scale(of_rows[half]);
    unrolled<pairs>([&](auto j) MR_INLINE {
      unrolled<2>([&](auto i)
                      MR_INLINE { total[2 * h + i][j] = vmlaq_s32(total[2 * h + i][j], sums[i][j], scale.of[i]); });
    });
    if constexpr (Format::kMins) {
      int16x8_t own = Format::mins(block, g, s);
      if constexpr (s == 1) own = vsubq_s16(own, Format::mins(block, g, 0));  // what is beyond the minimum of all 32
      const FlatIntegers min(vmovl_s16(half == 0 ? vget_low_s16(own) : vget_high_s16(own)));
      unrolled<pairs>([&](auto j) MR_INLINE {
        const int32x4_t sum = vld1q_s32(x.sum[s][j]);
        unrolled<2>([&](auto i) MR_INLINE { mins[2 * h + i][j] = vmlaq_s32(mins[2 * h + i][j], min.of[i], sum); });
      });
    }
  }
  MR_INLINE void settle(const typename Format::Block& block, int half, int h, const FlatX<Format>& x,
                        float32x4_t (*acc)[pairs]) const {
    const FlatPairs d(load_f16(block.d, half));
    unrolled<pairs>([&](auto j) MR_INLINE {
      const float32x4_t step = vld1q_f32(x.step[j]);
      unrolled<2>([&](auto i) MR_INLINE {
        float32x4_t& to = acc[2 * h + i][j];
        to = vfmaq_f32(to, vcvtq_f32_s32(total[2 * h + i][j]), vmulq_f32(d.of[i], step));
        if constexpr (Format::kMins) {
          const FlatPairs dmin(load_f16(block.dmin, half));
          to = vfmsq_f32(to, vcvtq_f32_s32(mins[2 * h + i][j]), vmulq_f32(dmin.of[i], step));
        }
      });
    });
  }
};

// The blocks of one strip from group `first` on, and where those of the strip that comes next are.
template <class Format>
struct FlatStrip {
  using Block = typename Format::Block;
  static constexpr int kBytes = sizeof(Block) / Format::kGroups;

  const Block* blocks;
  int64_t ahead;  // bytes

  FlatStrip(const LinearWeights& weights, int64_t strip, int64_t next, int64_t first) {
    const int64_t each = weights.k / (32 * Format::kGroups);
    blocks = reinterpret_cast<const Block*>(weights.data) + strip * each + first / Format::kGroups;
    ahead = (next - strip) * each * static_cast<int64_t>(sizeof(Block));
  }
  MR_INLINE const Block& block(int64_t g) const { return blocks[g / Format::kGroups]; }
  // The next strip's share of group g, while one or both halves of this one are multiplied.
  template <int halves>
  MR_INLINE void prefetch(int64_t g, int half) const {
    constexpr int kShare = kBytes * halves / 2;
    const char* next = reinterpret_cast<const char*>(blocks) + ahead + g * kBytes + half * (kBytes / 2);
    unrolled<(kShare + 63) / 64>([&](auto line) MR_INLINE { __builtin_prefetch(next + kFlatAhead + 64 * line, 0, 2); });
  }
};

// `halves` of a strip's rows from `half` on with pairs of rows of x, over `groups` groups.
template <class Format, int half, int halves, int pairs>
MR_INLINE inline void multiply_halves(const FlatStrip<Format>& w, const FlatX<Format>* x, int64_t groups,
                                      float32x4_t (*sums)[pairs]) {
  float32x4_t acc[2 * halves][pairs];
  const auto each = [](auto visit) MR_INLINE {
    unrolled<2 * halves>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { visit(i, j); }); });
  };
  each([&](auto i, auto j) MR_INLINE { acc[i][j] = vdupq_n_f32(0); });
  for (int64_t first = 0; first < groups; first += FlatX<Format>::kGroups, ++x) {
    FlatTotals<Format, halves, pairs> totals;
    const int64_t count = std::min<int64_t>(FlatX<Format>::kGroups, groups - first);
    for (int64_t of = 0; of < count; ++of) {
      const auto& block = w.block(first + of);
      const auto g = static_cast<int>((first + of) % Format::kGroups);
      w.template prefetch<halves>(first + of, half);
      unrolled<halves>([&](auto h) MR_INLINE {
        unrolled<Format::kScales>([&](auto s) MR_INLINE {
          int32x4_t run[2][pairs];
          multiply_run<Format, pairs, s>(block, g, half + h, x->groups[of], run);
          totals.template add<s>(block, g, half + h, h, x->groups[of], run);
        });
      });
    }
    unrolled<halves>([&](auto h) MR_INLINE { totals.settle(w.block(first), half + h, h, *x, acc); });
  }
  each([&](auto i, auto j) MR_INLINE { sums[2 * half + i][j] = acc[i][j]; });
}

struct FlatPlace {  // of a tile of y
  int64_t strip, row, rows;
  bool fresh;
};

// Groups [0, groups) of a strip with up to four pairs of rows of x.
template <class Format, int pairs>
__attribute__((noinline)) void multiply_flat(const LinearArgs& args, const FlatStrip<Format> w, const FlatX<Format>* x,
                                             int64_t groups, const FlatPlace& place) {
  float32x4_t sums[4][pairs];
  if constexpr (pairs <= 2) {
    multiply_halves<Format, 0, 2, pairs>(w, x, groups, sums);
  } else {  // one after the other, so that all sums stay in registers
    multiply_halves<Format, 0, 1, pairs>(w, x, groups, sums);
    multiply_halves<Format, 1, 1, pairs>(w, x, groups, sums);
  }
  write_pairs<pairs>(args, sums, place.strip, place.row, place.rows, place.fresh);
}

// Stretches of k go outermost, so that x of one stays in the L1 cache while all strips pass; tiles of x innermost, so
// that each strip is read from memory for the first of them only.
void flat_strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  const int64_t groups = args.weights->k / 32;
  with_format(args.weights->format, [&](auto format) {
    using Format = decltype(format);
    const int64_t blocks = flat_x_blocks<Format>(args.weights->k);
    for (int64_t first = 0; first < groups; first += kFlatStretch) {
      const int64_t count = std::min(kFlatStretch, groups - first);
      for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
        const int64_t next = strip + 1 < piece.strip_end ? strip + 1 : piece.strip_after;
        const FlatStrip<Format> w(*args.weights, strip, next, first);
        for_tiles<kFlatPairs>(piece.m_begin / 2, (piece.m_end + 1) / 2, [&](int64_t pair, auto pairs) {
          const auto* tile = reinterpret_cast<const FlatX<Format>*>(x) + pair / kFlatPairs * blocks;
          const int64_t rows = std::min<int64_t>(2 * pairs, piece.m_end - 2 * pair);
          multiply_flat<Format, pairs>(args, w, tile + first / FlatX<Format>::kGroups, count,
                                       {strip, 2 * pair, rows, first == 0});
        });
      }
    }
  });
}
