// Decode and small batches: multiplies packed weights straight from memory with up to four rows of x. Included inside a
// target region, after Dot, which multiplies quads.
#pragma once

#include "kernels/linear/rows8/arm/epilogue-inl.h"
#include "kernels/linear/rows8/arm/unpack-inl.h"
#include "kernels/linear/rows8/arm/zero-inl.h"
#include "kernels/linear/rows8/streams-inl.h"
// Must follow the formats:
#include "kernels/linear/rows8/arm/strip_x-inl.h"

// Calls visit(stream, half) for each four rows of weights. Interleaves their work: otherwise the queues of the vector
// pipes would fill with additions that depend on each other.
template <int streams, class Visit>
MR_INLINE inline void each_four(Visit visit) {
  unrolled<streams>([&](auto s) MR_INLINE { unrolled<2>([&](auto half) MR_INLINE { visit(s, half); }); });
}

template <int streams, int m>
using Sums = int32x4_t[streams][2][m];

// Group g of nibbles: multiplies the low nibbles alone, and the whole bytes (packed_x-inl.h). Both products follow the
// load directly: the core forwards a fresh result to its consumer, while a value that rests in a register must be read
// from the register file, which supplies only about four operands per cycle.
template <class Format, int m, int streams>
MR_INLINE inline void dot_nibbles(const StripStreams<Format, streams>& strips, int g, const int32_t (&first)[m][4],
                                  const int8_t (&q)[m][32], Sums<streams, m>& sums) {
  Sums<streams, m> low;
  int8x16_t x_low[m], x_high[m];
  unrolled<m>([&](auto r) MR_INLINE {
    x_low[r] = vld1q_s8(q[r]);
    x_high[r] = vld1q_s8(q[r] + 16);
  });
  each_four<streams>([&](auto s, auto half) MR_INLINE {
    unrolled<m>([&](auto r) MR_INLINE {
      low[s][half][r] = zero_sum();
      sums[s][half][r] = load_sum(first[r]);
    });
  });
  unrolled<4>([&](auto j) MR_INLINE {
    each_four<streams>([&](auto s, auto half) MR_INLINE {
      const uint8x16_t both = load_half(Format::nibbles(strips.block(s), g)[j], half);
      const int8x16_t w = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
      unrolled<m>([&](auto r) MR_INLINE { Dot::quad<j>(sums[s][half][r], vreinterpretq_s8_u8(both), x_high[r]); });
      unrolled<m>([&](auto r) MR_INLINE { Dot::quad<j>(low[s][half][r], w, x_low[r]); });
    });
  });
  each_four<streams>([&](auto s, auto half) MR_INLINE {
    unrolled<m>([&](auto r)
                    MR_INLINE { sums[s][half][r] = vmlaq_s32(sums[s][half][r], low[s][half][r], vdupq_n_s32(16)); });
  });
}

// Four rows of group g of the other formats: adds the products of elements 0..15 and 16..31 to `sums`.
template <class Format, int m>
MR_INLINE inline void dot_half(const typename Format::Block& block, int g, int half, const int8_t (&q)[m][32],
                               int32x4_t* (&&sums)[2]) {
  Weights w;
  Format::weights(block, g, half, w);
  unrolled<2>([&](auto sixteen) MR_INLINE {
    int8x16_t xs[m];
    unrolled<m>([&](auto r) MR_INLINE { xs[r] = vld1q_s8(q[r] + 16 * sixteen); });
    unrolled<4>([&](auto j) MR_INLINE {
      unrolled<m>([&](auto r) MR_INLINE { Dot::quad<j>(sums[sixteen][r], w[4 * sixteen + j], xs[r]); });
    });
  });
}

template <class Format, int m, int streams>
MR_INLINE inline void add_small_blocks(const StripStreams<Format, streams>& strips, const SmallX<m>& x,
                                       float32x4_t (&acc)[streams][2][m]) {
  Sums<streams, m> sums;
  if constexpr (Format::kNibbles) {
    dot_nibbles<Format, m, streams>(strips, 0, x.first, x.q, sums);
  } else {
    each_four<streams>([&](auto s, auto half) MR_INLINE {
      unrolled<m>([&](auto r) MR_INLINE { sums[s][half][r] = load_sum(x.first[r]); });
      dot_half<Format, m>(strips.block(s), 0, half, x.q, {sums[s][half], sums[s][half]});
    });
  }
  each_four<streams>([&](auto s, auto half) MR_INLINE {
    const auto& block = strips.block(s);
    const float32x4_t d = block_scale(block, half), shift = vdupq_n_f32(kIntegerShift);
    unrolled<m>([&](auto r) MR_INLINE {
      const float32x4_t sum = vsubq_f32(vreinterpretq_f32_s32(sums[s][half][r]), shift);
      acc[s][half][r] = vfmaq_f32(acc[s][half][r], sum, vmulq_n_f32(d, x.scale[r]));
    });
    if constexpr (Format::kMins) {
      const float32x4_t min = load_f16(block.m, half);
      unrolled<m>([&](auto r) MR_INLINE { acc[s][half][r] = vfmaq_n_f32(acc[s][half][r], min, x.sum[r]); });
    }
  });
}

// Group g of K-blocks: multiplies the integer sums with its integer scales.
template <class Format, int m, int streams>
MR_INLINE inline void add_k_group(const StripStreams<Format, streams>& strips, int g,
                                  const typename SuperX<m>::Group& x, Sums<streams, m>& scaled) {
  if constexpr (Format::kNibbles) {
    Sums<streams, m> sums;
    dot_nibbles<Format, m, streams>(strips, g, x.first, x.q, sums);
    unrolled<streams>([&](auto s) MR_INLINE {
      int32x4_t scale[2];
      Format::scales(strips.block(s), g, 0, scale);
      unrolled<2>([&](auto half) MR_INLINE {
        unrolled<m>([&](auto r) MR_INLINE {
          scaled[s][half][r] = vmlaq_s32(scaled[s][half][r], sums[s][half][r], scale[half]);
        });
      });
    });
  } else {
    unrolled<streams>([&](auto s) MR_INLINE {
      int32x4_t scale[2][2];
      unrolled<Format::kScales>([&](auto i) MR_INLINE { Format::scales(strips.block(s), g, i, scale[i]); });
      unrolled<2>([&](auto half) MR_INLINE {
        int32x4_t first[m], second[m];
        unrolled<m>([&](auto r) MR_INLINE {
          first[r] = Format::kOffset == 0 ? zero_sum() : load_sum(x.first[r]);
          second[r] = zero_sum();
        });
        dot_half<Format, m>(strips.block(s), g, half, x.q, {first, Format::kScales == 2 ? second : first});
        unrolled<m>([&](auto r) MR_INLINE {
          int32x4_t& sum = scaled[s][half][r];
          sum = vmlaq_s32(sum, first[r], scale[0][half]);
          if constexpr (Format::kScales == 2) sum = vmlaq_s32(sum, second[r], scale[1][half]);
        });
      });
    });
  }
}

// Adds the minima of group g times the sums of x.
template <class Format, int m, int streams>
MR_INLINE inline void add_k_mins(const StripStreams<Format, streams>& strips, int g, const typename SuperX<m>::Group& x,
                                 Sums<streams, m>& mins) {
  unrolled<streams>([&](auto s) MR_INLINE {
    unrolled<Format::kScales>([&](auto i) MR_INLINE {
      int16x8_t min = Format::mins(strips.block(s), g, i);
      if constexpr (i == 1) min = vsubq_s16(min, Format::mins(strips.block(s), g, 0));  // relative to the first
      unrolled<m>([&](auto r) MR_INLINE {
        const int16x8_t sum = vld1q_s16(x.sum[i][r]);
        mins[s][0][r] = vmlal_s16(mins[s][0][r], vget_low_s16(min), vget_low_s16(sum));
        mins[s][1][r] = vmlal_high_s16(mins[s][1][r], min, sum);
      });
    });
  });
}

template <class Format, int m, int streams, Ahead ahead>
MR_INLINE inline void add_k_blocks(const StripStreams<Format, streams>& strips, const SuperX<m>& x,
                                   float32x4_t (&acc)[streams][2][m]) {
  Sums<streams, m> scaled, mins;
  each_four<streams>([&](auto s, auto half) MR_INLINE {
    unrolled<m>([&](auto r) MR_INLINE { scaled[s][half][r] = mins[s][half][r] = vdupq_n_s32(0); });
  });
  for (int g = 0; g < Format::kGroups; ++g) {
    strips.template prefetch<ahead>(g);
    add_k_group<Format, m, streams>(strips, g, x.groups[g], scaled);
    if constexpr (Format::kMins) add_k_mins<Format, m, streams>(strips, g, x.groups[g], mins);
  }
  each_four<streams>([&](auto s, auto half) MR_INLINE {
    const auto& block = strips.block(s);
    const float32x4_t d = load_f16(block.d, half);
    unrolled<m>([&](auto r) MR_INLINE {
      acc[s][half][r] = vfmaq_f32(acc[s][half][r], vcvtq_f32_s32(scaled[s][half][r]), vmulq_n_f32(d, x.scale[r]));
    });
    if constexpr (Format::kMins) {
      const float32x4_t dmin = load_f16(block.dmin, half);
      unrolled<m>([&](auto r) MR_INLINE {
        const float32x4_t step = vmulq_n_f32(dmin, x.scale[r] * (1 / kPackedUnit<Format>));
        acc[s][half][r] = vfmsq_f32(acc[s][half][r], vcvtq_f32_s32(mins[s][half][r]), step);
      });
    }
  });
}

template <class Format, int m, int streams, Ahead ahead>
__attribute__((noinline)) void multiply_strip(const LinearArgs& args, int64_t strip, int64_t m_begin,
                                              const StripX<Format, m>* x) {
  float32x4_t acc[streams][2][m];  // rows 0..3 and 4..7 of each strip
  each_four<streams>([&](auto s, auto half)
                         MR_INLINE { unrolled<m>([&](auto r) MR_INLINE { acc[s][half][r] = vdupq_n_f32(0); }); });
  for (StripStreams<Format, streams> strips(*args.weights, strip); strips.more(); strips.next(), ++x) {
    if constexpr (Format::kGroups == 1) {
      strips.template prefetch<ahead>();
      add_small_blocks<Format, m, streams>(strips, *x, acc);
    } else {
      add_k_blocks<Format, m, streams, ahead>(strips, *x, acc);
    }
  }
  each_four<streams>([&](auto s, auto half) MR_INLINE {
    unrolled<m>([&](auto r) MR_INLINE {
      write_four(args, m_begin + r, (strip + s) * kPackedRows + 4 * half, acc[s][half][r], true);
    });
  });
}

// One row of x.
template <class Format, Ahead ahead>
void decode_strips(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  for_streams<std::min(kStreams<Format, 1>, Dot::kMostStreams)>(
      piece.strip_begin, piece.strip_end, [&](int64_t strip, auto streams) {
        const auto* row = x_tile<Format, 1>(x, piece.m_begin, args.weights->k);
        multiply_strip<Format, 1, streams, ahead>(args, strip, piece.m_begin, row);
      });
}

// The loop over strips is the outermost: with several tiles of x, only the first one reads a strip from memory.
template <class Format>
void multiply_strips(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  if (piece.m_end - piece.m_begin == 1) return decode_strips<Format, kAhead>(args, x, piece);
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
    for_tiles<4>(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
      multiply_strip<Format, rows, 1, kAhead>(args, strip, row, x_tile<Format, rows>(x, row, args.weights->k));
    });
  }
}

void strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { multiply_strips<decltype(format)>(args, x, piece); });
}
