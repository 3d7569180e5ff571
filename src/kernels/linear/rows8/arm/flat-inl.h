// Small batches: multiplies packed weights straight from memory with up to eight rows of x at a time. Included inside a
// target region, after the formats and an instruction set's Flat:
//   kColumns                        vectors of sums that eight rows of x have with the same rows of weights
//   kParts                          vectors of sums that four rows of weights have per column
//   Spread<Vector>                  a vector of four rows of weights as kParts vectors, in the order of the sums
//   X<Format>                       eight interleaved rows of x (flat_x-inl.h)
//   multiply<Format, columns, s>    multiplies four rows of weights with columns of x: the sums of scale `s` of a group
//   write<columns>                  writes sums to y
//
// The instructions between the products limit the speed. Therefore weights are multiplied directly after unpacking and
// never stored; with many rows of x, four rows of weights are processed at a time, so that all sums stay in registers;
// and bytes of two nibbles are multiplied without separating them (packed_x-inl.h).
#pragma once

constexpr int64_t kFlatStretch = 64;  // groups; this much of x stays in the L1 cache
// Prefetch distance beyond the next strip, into the L2 cache. The L1 cache tracks too few outstanding lines:
// prefetching into it reaches 10 GB/s whatever the number of rows.
constexpr int64_t kFlatAhead = 4096;

struct FlatPlace {  // location of a tile in y
  int64_t strip, row, rows;
  bool fresh;
};

// Scaled sums of one step of x: [part of the rows of weights][column].
//
// Small blocks: the sums are multiplied with kIntegerShift still in them. Its contribution depends on the scales only
// and is subtracted at the end.
template <class Flat, class Format, int halves, int columns>
struct FlatTotals {
  using X = typename Flat::template X<Format>;
  static constexpr int kParts = Flat::kParts;

  float32x4_t total[kParts * halves][columns], scales[halves];

  MR_INLINE FlatTotals() {
    unrolled<halves>([&](auto h) MR_INLINE { scales[h] = vdupq_n_f32(0); });
    unrolled<kParts * halves>([&](auto i) MR_INLINE {
      unrolled<columns>([&](auto j) MR_INLINE { total[i][j] = vreinterpretq_f32_s32(zero_sum()); });
    });
  }
  template <int s>
  MR_INLINE void add(const typename Format::Block& block, int, int half, int h, const typename X::Group& x,
                     const int32x4_t (&sums)[kParts][columns]) {
    const float32x4_t own = block_scale(block, half);
    scales[h] = vaddq_f32(scales[h], own);
    const typename Flat::template Spread<float32x4_t> scale(own);
    unrolled<columns>([&](auto j) MR_INLINE {
      unrolled<kParts>([&](auto i) MR_INLINE {
        float32x4_t& to = total[kParts * h + i][j];
        to = vfmaq_f32(to, vreinterpretq_f32_s32(sums[i][j]), scale.of[i]);
      });
    });
    if constexpr (Format::kMins) {
      const typename Flat::template Spread<float32x4_t> min(load_f16(block.m, half));
      unrolled<columns>([&](auto j) MR_INLINE {
        const float32x4_t sum = vld1q_f32(x.sum[0][j]);
        unrolled<kParts>(
            [&](auto i) MR_INLINE { total[kParts * h + i][j] = vfmaq_f32(total[kParts * h + i][j], min.of[i], sum); });
      });
    }
  }
  MR_INLINE void settle(const typename Format::Block&, int, int h, const X& x, float32x4_t (*acc)[columns]) const {
    const typename Flat::template Spread<float32x4_t> shift(vmulq_n_f32(scales[h], -kIntegerShift));
    unrolled<columns>([&](auto j) MR_INLINE {
      const float32x4_t step = vld1q_f32(x.step[j]);
      unrolled<kParts>([&](auto i) MR_INLINE {
        acc[kParts * h + i][j] =
            vfmaq_f32(acc[kParts * h + i][j], vaddq_f32(total[kParts * h + i][j], shift.of[i]), step);
      });
    });
  }
};

// K-blocks: scales are integers, so all arithmetic is integer until the end of a block.
template <class Flat, class Format, int halves, int columns>
requires(Format::kGroups > 1) struct FlatTotals<Flat, Format, halves, columns> {
  using X = typename Flat::template X<Format>;
  static constexpr int kParts = Flat::kParts;

  int32x4_t total[kParts * halves][columns], mins[kParts * halves][columns];

  MR_INLINE FlatTotals() {
    unrolled<kParts * halves>([&](auto i) MR_INLINE {
      unrolled<columns>([&](auto j) MR_INLINE {
        total[i][j] = zero_sum();
        if constexpr (Format::kMins) mins[i][j] = zero_sum();
      });
    });
  }
  template <int s>
  MR_INLINE void add(const typename Format::Block& block, int g, int half, int h, const typename X::Group& x,
                     const int32x4_t (&sums)[kParts][columns]) {
    int32x4_t of_rows[2];
    Format::scales(block, g, s, of_rows);
    const typename Flat::template Spread<int32x4_t> scale(of_rows[half]);
    unrolled<columns>([&](auto j) MR_INLINE {
      unrolled<kParts>([&](auto i) MR_INLINE {
        total[kParts * h + i][j] = vmlaq_s32(total[kParts * h + i][j], sums[i][j], scale.of[i]);
      });
    });
    if constexpr (Format::kMins) {
      int16x8_t own = Format::mins(block, g, s);
      if constexpr (s == 1)
        own = vsubq_s16(own, Format::mins(block, g, 0));  // relative to the minimum applied to all 32
      const typename Flat::template Spread<int32x4_t> min(
          vmovl_s16(half == 0 ? vget_low_s16(own) : vget_high_s16(own)));
      unrolled<columns>([&](auto j) MR_INLINE {
        const int32x4_t sum = vld1q_s32(x.sum[s][j]);
        unrolled<kParts>(
            [&](auto i) MR_INLINE { mins[kParts * h + i][j] = vmlaq_s32(mins[kParts * h + i][j], min.of[i], sum); });
      });
    }
  }
  MR_INLINE void settle(const typename Format::Block& block, int half, int h, const X& x,
                        float32x4_t (*acc)[columns]) const {
    const typename Flat::template Spread<float32x4_t> d(load_f16(block.d, half));
    unrolled<columns>([&](auto j) MR_INLINE {
      const float32x4_t step = vld1q_f32(x.step[j]);
      unrolled<kParts>([&](auto i) MR_INLINE {
        float32x4_t& to = acc[kParts * h + i][j];
        to = vfmaq_f32(to, vcvtq_f32_s32(total[kParts * h + i][j]), vmulq_f32(d.of[i], step));
        if constexpr (Format::kMins) {
          const typename Flat::template Spread<float32x4_t> dmin(load_f16(block.dmin, half));
          to = vfmsq_f32(to, vcvtq_f32_s32(mins[kParts * h + i][j]), vmulq_f32(dmin.of[i], step));
        }
      });
    });
  }
};

// The blocks of one strip from group `first` on, and the distance to those of the next strip.
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
  // Prefetches the next strip's share of group g while one or both halves of this strip are multiplied.
  template <int halves>
  MR_INLINE void prefetch(int64_t g, int half) const {
    constexpr int kShare = kBytes * halves / 2;
    const char* next = reinterpret_cast<const char*>(blocks) + ahead + g * kBytes + half * (kBytes / 2);
    unrolled<(kShare + 63) / 64>([&](auto line) MR_INLINE { __builtin_prefetch(next + kFlatAhead + 64 * line, 0, 2); });
  }
};

// Multiplies `halves` halves of a strip's rows, from `half` on, with columns of x over `groups` groups.
template <class Flat, class Format, int half, int halves, int columns>
MR_INLINE inline void multiply_halves(const FlatStrip<Format>& w, const typename Flat::template X<Format>* x,
                                      int64_t groups, float32x4_t (*sums)[columns]) {
  constexpr int kParts = Flat::kParts, kStepGroups = Flat::template X<Format>::kGroups;
  float32x4_t acc[kParts * halves][columns];
  const auto each = [](auto visit) MR_INLINE {
    unrolled<kParts * halves>([&](auto i) MR_INLINE { unrolled<columns>([&](auto j) MR_INLINE { visit(i, j); }); });
  };
  each([&](auto i, auto j) MR_INLINE { acc[i][j] = vdupq_n_f32(0); });
  for (int64_t first = 0; first < groups; first += kStepGroups, ++x) {
    FlatTotals<Flat, Format, halves, columns> totals;
    const int64_t count = std::min<int64_t>(kStepGroups, groups - first);
    for (int64_t of = 0; of < count; ++of) {
      const auto& block = w.block(first + of);
      const auto g = static_cast<int>((first + of) % Format::kGroups);
      w.template prefetch<halves>(first + of, half);
      unrolled<halves>([&](auto h) MR_INLINE {
        unrolled<Format::kScales>([&](auto s) MR_INLINE {
          int32x4_t run[kParts][columns];
          Flat::template multiply<Format, columns, s>(block, g, half + h, x->groups[of], run);
          totals.template add<s>(block, g, half + h, h, x->groups[of], run);
        });
      });
    }
    unrolled<halves>([&](auto h) MR_INLINE { totals.settle(w.block(first), half + h, h, *x, acc); });
  }
  each([&](auto i, auto j) MR_INLINE { sums[kParts * half + i][j] = acc[i][j]; });
}

// Multiplies groups [0, groups) of a strip with up to eight rows of x.
template <class Flat, class Format, int columns>
__attribute__((noinline)) void multiply_flat(const LinearArgs& args, const FlatStrip<Format> w,
                                             const typename Flat::template X<Format>* x, int64_t groups,
                                             const FlatPlace& place) {
  float32x4_t sums[2 * Flat::kParts][columns];
  if constexpr (2 * columns <= Flat::kColumns) {
    multiply_halves<Flat, Format, 0, 2, columns>(w, x, groups, sums);
  } else {  // one half after the other, so that all sums stay in registers
    multiply_halves<Flat, Format, 0, 1, columns>(w, x, groups, sums);
    multiply_halves<Flat, Format, 1, 1, columns>(w, x, groups, sums);
  }
  Flat::template write<columns>(args, sums, place);
}

// The loop over stretches of k is the outermost, so that x of one stretch stays in the L1 cache while all strips are
// multiplied. The loop over tiles of x is the innermost, so that only the first tile reads a strip from memory.
template <class Flat>
void flat_strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  constexpr int kRows = 8 / Flat::kColumns;  // rows of x per column
  const int64_t groups = args.weights->k / 32;
  with_format(args.weights->format, [&](auto format) {
    using Format = decltype(format);
    using X = typename Flat::template X<Format>;
    const int64_t blocks = X::blocks(args.weights->k);
    for (int64_t first = 0; first < groups; first += kFlatStretch) {
      const int64_t count = std::min(kFlatStretch, groups - first);
      for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
        const int64_t next = strip + 1 < piece.strip_end ? strip + 1 : piece.strip_after;
        const FlatStrip<Format> w(*args.weights, strip, next, first);
        const int64_t end = (piece.m_end + kRows - 1) / kRows;
        for_tiles<Flat::kColumns>(piece.m_begin / kRows, end, [&](int64_t column, auto columns) {
          const auto* tile = reinterpret_cast<const X*>(x) + column / Flat::kColumns * blocks;
          const int64_t rows = std::min<int64_t>(kRows * columns, piece.m_end - kRows * column);
          multiply_flat<Flat, Format, columns>(args, w, tile + first / X::kGroups, count,
                                               {strip, kRows * column, rows, first == 0});
        });
      }
    }
  });
}
