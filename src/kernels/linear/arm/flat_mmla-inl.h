// Small batches with SMMLA: packed weights from memory through registers, up to eight rows of x at a time. Included
// inside a target region, after the micro-kernel of panels.
//
// What bounds it are the slots of the vector pipes: 64 products for 32 elements of eight rows of weights and eight of x
// leave few for anything else. So weights are multiplied as they come out of their zips, never stored; four rows of
// them at a time, so that all sums stay in registers; nibbles are not taken apart (packed_x-inl.h); and x has a step
// for every 64 elements, since one for every 32 would be multiplied with every scale of the weights.
#pragma once

#include "kernels/linear/arm/packed_x-inl.h"

constexpr int kFlatGroups = 2;        // of x that share a step
constexpr int64_t kFlatStretch = 64;  // groups: as much of x as stays in the L1 cache

// Unsigned weights.
MR_INLINE inline void usmmla(int32x4_t& sum, uint8x16_t w, int8x16_t x) {
  asm volatile("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
}

struct FlatX {  // 64 elements of two rows, as [x0, x1, x0, x1] where sums come in that order
  float step[4];
  struct Group {
    int32_t first[4];  // what sums start from; as a float: kIntegerShift
    float sum[2][4];   // of all 32, and of the second 16 alone
    int8_t q[4][2][8];
  } groups[kFlatGroups];

  template <class Format>
  MR_INLINE void put(int row, const float* x, int64_t count) {
    const Steps steps = steps_for<Format>(largest_of(x, 32 * count));
    const auto both = [&](auto(&to)[4], auto value) MR_INLINE { to[row] = to[row + 2] = value; };
    both(step, steps.step * kPackedUnit<Format>);
    for (int64_t g = 0; g < count; ++g) {
      const Rounded32 v = round_32<Format::kNibbles>(x + 32 * g, steps.inverse);
      Group& to = groups[g];
      both(to.first, std::bit_cast<int32_t>(kIntegerShift) + first_sum<Format>(v));
      both(to.sum[0], sum_of<Format>(v) / kPackedUnit<Format>);
      both(to.sum[1], static_cast<float>(v.total[1]) / kPackedUnit<Format>);
      for (int i = 0; i < 2; ++i) {
        vst1_s8(to.q[2 * i][row], vget_low_s8(v.q[i]));
        vst1_s8(to.q[2 * i + 1][row], vget_high_s8(v.q[i]));
      }
    }
  }
};

// Pairs of rows lie one after the other.
inline int64_t flat_x_blocks(int64_t k) { return (k / 32 + kFlatGroups - 1) / kFlatGroups; }

size_t flat_x_bytes(int64_t m, int64_t k) {
  return static_cast<size_t>((m + 1) / 2 * flat_x_blocks(k)) * sizeof(FlatX);
}

void quantize_for_flat(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const int64_t groups = args.x.cols / 32, blocks = flat_x_blocks(args.x.cols);
  with_format(args.weights->format, [&](auto format) {
    for (int64_t m = m_begin; m < m_end; m += 2) {
      auto* pair = reinterpret_cast<FlatX*>(out) + m / 2 * blocks;
      for (int r = 0; r < 2; ++r) {
        // A row that does not exist repeats the one before; what comes of it is not written.
        const float* x = args.x.row<float>(std::min(m + r, m_end - 1));
        for (int64_t g = 0; g < groups; g += kFlatGroups) {
          pair[g / kFlatGroups].put<decltype(format)>(r, x + 32 * g, std::min<int64_t>(kFlatGroups, groups - g));
        }
      }
    }
  });
}

// The same block of up to four pairs of rows, which lie `stride` blocks apart.
struct FlatXTile {
  const FlatX* first;
  int64_t stride;
  MR_INLINE const FlatX& operator[](int64_t pair) const { return first[pair * stride]; }
};

// Two quads of four rows each as the same eight elements of rows 0 and 1, and of rows 2 and 3.
struct PairsOfRows {
  int8x16_t of[2];

  MR_INLINE PairsOfRows(int8x16_t first, int8x16_t second) {
    const int32x4_t low = vreinterpretq_s32_s8(first), high = vreinterpretq_s32_s8(second);
    of[0] = vreinterpretq_s8_s32(vzip1q_s32(low, high));
    of[1] = vreinterpretq_s8_s32(vzip2q_s32(low, high));
  }
};

// Four rows of weights with pairs of rows of x: of group g, which is group `of` of the block of x, the eights
// [first, end).
template <class Format, int first, int end, int pairs>
MR_INLINE inline void multiply_eights(const typename Format::Block& block, int g, int half, const FlatXTile& x,
                                      int64_t of, int32x4_t (*sums)[pairs]) {
  const auto each = [&](auto eight, auto visit) MR_INLINE {
    int8x16_t xs[pairs];
    unrolled<pairs>([&](auto j) MR_INLINE { xs[j] = vld1q_s8(x[j].groups[of].q[eight][0]); });
    unrolled<2>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { visit(i, sums[i][j], xs[j]); }); });
  };
  if constexpr (Format::kNibbles) {
    const auto& nibbles = Format::nibbles(block, g);
    unrolled<2>([&](auto i) MR_INLINE {
      const PairsOfRows w(vreinterpretq_s8_u8(load_half(nibbles[2 * i], half)),
                          vreinterpretq_s8_u8(load_half(nibbles[2 * i + 1], half)));
      each(std::integral_constant<int, i + 2>(),
           [&](auto p, int32x4_t& sum, int8x16_t q) MR_INLINE { smmla(sum, w.of[p], q); });
      const uint8x16_t low[2] = {vshlq_n_u8(vreinterpretq_u8_s8(w.of[0]), 4),
                                 vshlq_n_u8(vreinterpretq_u8_s8(w.of[1]), 4)};
      each(i, [&](auto p, int32x4_t& sum, int8x16_t q) MR_INLINE { usmmla(sum, low[p], q); });
    });
  } else {
    Weights w;
    Format::weights(block, g, half, w);
    unrolled<end - first>([&](auto i) MR_INLINE {
      constexpr int eight = first + i;
      const PairsOfRows rows(w[2 * eight], w[2 * eight + 1]);
      each(std::integral_constant<int, eight>(),
           [&](auto p, int32x4_t& sum, int8x16_t q) MR_INLINE { smmla(sum, rows.of[p], q); });
    });
  }
}

// The blocks of one strip from group `first` on, and where the next strip's are.
template <class Format>
struct FlatStrip {
  using Block = typename Format::Block;
  static constexpr int kBytes = sizeof(Block) / Format::kGroups;

  const Block* blocks;
  int64_t ahead;  // bytes

  FlatStrip(const LinearWeights& weights, int64_t strip, int64_t first) {
    const int64_t each = weights.k / (32 * Format::kGroups);
    blocks = reinterpret_cast<const Block*>(weights.data) + strip * each + first / Format::kGroups;
    ahead = each * static_cast<int64_t>(sizeof(Block));
  }
  MR_INLINE const Block& block(int64_t g) const { return blocks[g / Format::kGroups]; }
  // The next strip's share of group g, while one or both halves of this one are multiplied.
  template <int halves>
  MR_INLINE void prefetch(int64_t g, int half) const {
    constexpr int kShare = kBytes * halves / 2;
    const char* next = reinterpret_cast<const char*>(blocks) + ahead + g * kBytes + half * (kBytes / 2);
    unrolled<(kShare + 63) / 64>([&](auto line) MR_INLINE { __builtin_prefetch(next + 64 * line, 0, 3); });
  }
};

// Four rows of something as the pairs that sums come in.
struct FlatPairs {
  float32x4_t of[2];
  MR_INLINE explicit FlatPairs(float32x4_t rows) : of{vzip1q_f32(rows, rows), vzip2q_f32(rows, rows)} {}
};

// What `runs` stretches with a scale each add to sums of `halves` of the eight rows from `half` on: groups g and g + 1,
// or the two scales of group g. Both are multiplied before either is scaled, so that scaling finds the products done.
template <class Format, int halves, int pairs, int runs>
MR_INLINE inline void add_flat_runs(const FlatStrip<Format>& w, int64_t g, int half, const FlatXTile& x, int64_t of,
                                    float32x4_t (&acc)[2 * halves][pairs]) {
  constexpr int kScales = Format::kScales, kEights = 4 / kScales;
  const auto block = [&](int run) MR_INLINE -> auto& { return w.block(g + run / kScales); };
  const auto group = [&](int run) MR_INLINE { return static_cast<int>((g + run / kScales) % Format::kGroups); };
  int32x4_t sums[runs][2 * halves][pairs];
  unrolled<runs>([&](auto run) MR_INLINE {
    constexpr int first = run % kScales * kEights;
    unrolled<2 * halves>([&](auto i) MR_INLINE {
      unrolled<pairs>([&](auto j) MR_INLINE { sums[run][i][j] = load_sum(x[j].groups[of + run / kScales].first); });
    });
    unrolled<halves>([&](auto h) MR_INLINE {
      multiply_eights<Format, first, first + kEights, pairs>(block(run), group(run), half + h, x, of + run / kScales,
                                                             sums[run] + 2 * h);
    });
  });
  unrolled<halves>([&](auto h) MR_INLINE {
    float32x4_t total[2][pairs];
    unrolled<runs>([&](auto run) MR_INLINE {
      constexpr int s = run % kScales;
      const FlatPairs scale(scale_of<Format>(block(run), group(run), half + h, s));
      unrolled<2>([&](auto i) MR_INLINE {
        unrolled<pairs>([&](auto j) MR_INLINE {
          const float32x4_t sum = unshifted(sums[run][2 * h + i][j]);
          total[i][j] = run == 0 ? vmulq_f32(sum, scale.of[i]) : vfmaq_f32(total[i][j], sum, scale.of[i]);
        });
      });
      if constexpr (Format::kMins) {
        float32x4_t own = plain_min_of<Format>(block(run), group(run), half + h, s);
        // Of the second 16 elements what is beyond the minimum of all.
        if constexpr (s == 1) own = vsubq_f32(own, plain_min_of<Format>(block(run), group(run), half + h, 0));
        const FlatPairs min(own);
        unrolled<2>([&](auto i) MR_INLINE {
          unrolled<pairs>([&](auto j) MR_INLINE {
            total[i][j] = vfmaq_f32(total[i][j], min.of[i], vld1q_f32(x[j].groups[of + run / kScales].sum[s]));
          });
        });
      }
    });
    unrolled<pairs>([&](auto j) MR_INLINE {
      const float32x4_t step = vld1q_f32(x[j].step);
      unrolled<2>([&](auto i) MR_INLINE { acc[2 * h + i][j] = vfmaq_f32(acc[2 * h + i][j], total[i][j], step); });
    });
  });
}

// `halves` of a strip's rows from `half` on with pairs of rows of x, over `groups` groups.
template <class Format, int half, int halves, int pairs>
MR_INLINE inline void multiply_halves(const FlatStrip<Format>& w, FlatXTile x, int64_t groups,
                                      float32x4_t (*sums)[pairs]) {
  float32x4_t acc[2 * halves][pairs];
  const auto each = [](auto visit) MR_INLINE {
    unrolled<2 * halves>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { visit(i, j); }); });
  };
  each([&](auto i, auto j) MR_INLINE { acc[i][j] = vdupq_n_f32(0); });
  for (int64_t g = 0; g < groups; g += kFlatGroups, ++x.first) {
    for (int of = 0; of < kFlatGroups; ++of) w.template prefetch<halves>(g + of, half);
    if constexpr (Format::kScales == 2) {  // K-blocks, which have an even number of groups
      for (int of = 0; of < kFlatGroups; ++of) add_flat_runs<Format, halves, pairs, 2>(w, g + of, half, x, of, acc);
    } else if (groups - g >= kFlatGroups) {
      add_flat_runs<Format, halves, pairs, 2>(w, g, half, x, 0, acc);
    } else {
      add_flat_runs<Format, halves, pairs, 1>(w, g, half, x, 0, acc);
    }
  }
  each([&](auto i, auto j) MR_INLINE { sums[2 * half + i][j] = acc[i][j]; });
}

struct FlatPlace {  // of a tile of y
  int64_t strip, row, rows;
  bool fresh;
};

// Groups [0, groups) of a strip with up to four pairs of rows of x.
template <class Format, int pairs>
__attribute__((noinline)) void multiply_flat(const LinearArgs& args, const FlatStrip<Format> w, const FlatXTile x,
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
  const int64_t groups = args.weights->k / 32, blocks = flat_x_blocks(args.weights->k);
  with_format(args.weights->format, [&](auto format) {
    using Format = decltype(format);
    for (int64_t first = 0; first < groups; first += kFlatStretch) {
      const int64_t count = std::min(kFlatStretch, groups - first);
      for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
        const FlatStrip<Format> w(*args.weights, strip, first);
        for_tiles<4>(piece.m_begin / 2, (piece.m_end + 1) / 2, [&](int64_t pair, auto pairs) {
          const auto* tile = reinterpret_cast<const FlatX*>(x) + pair * blocks + first / kFlatGroups;
          const int64_t rows = std::min<int64_t>(2 * pairs, piece.m_end - 2 * pair);
          multiply_flat<Format, pairs>(args, w, {tile, blocks}, count, {strip, 2 * pair, rows, first == 0});
        });
      }
    }
  });
}
