// Packed weights straight from memory through registers, for up to four rows of x: decode and small batches.
// Included inside a target region, after Dot, which multiplies quads.
#pragma once

#include "kernels/linear/arm/activations-inl.h"
#include "kernels/linear/arm/epilogue-inl.h"
#include "kernels/linear/arm/unpack-inl.h"
#include "kernels/linear/arm/zero-inl.h"
#include "kernels/linear/rows8/streams-inl.h"

// The dot products of quads [begin, begin + 4) of four rows of weights with 16 elements of x.
template <int begin>
MR_INLINE inline int32x4_t dot_16(int32x4_t sum, const Weights& w, int8x16_t x) {
  unrolled<4>([&](auto j) MR_INLINE { Dot::quad<j>(sum, w[begin + j], x); });
  return sum;
}

// What the sum of a group starts from, so that unsigned weights that are stored as signed come out right.
template <class Format>
MR_INLINE inline int32x4_t first_sum(int32_t total_of_x) {
  constexpr int kFactor = static_cast<int>(Format::kOffset / Format::kUnit);
  if constexpr (kFactor == 0) return zero_sum();
  return vdupq_n_s32(total_of_x * kFactor);
}

// Four rows of weights of a small block, m rows of x.
template <class Format, int m>
MR_INLINE inline void add_small_block(const typename Format::Block& block, int half, const XBlock<m>& x,
                                      float32x4_t (&acc)[m]) {
  Weights w;
  Format::weights(block, 0, half, w);
  const float32x4_t d = load_f16(block.d, half);
  unrolled<m>([&](auto r) MR_INLINE {
    const int32x4_t low = dot_16<0>(first_sum<Format>(x.total[r]), w, vld1q_s8(x.q[r]));
    const int32x4_t sum = dot_16<4>(low, w, vld1q_s8(x.q[r] + 16));
    acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(sum), vmulq_n_f32(d, x.scale[r]));
  });
  if constexpr (Format::kMins) {
    const float32x4_t min = load_f16(block.m, half);
    unrolled<m>([&](auto r) MR_INLINE { acc[r] = vfmaq_n_f32(acc[r], min, x.sum[0][r]); });
  }
}

// Four rows of weights of one group of a K-block. Integer scales are applied to the integer sums; the block's d and
// dmin come later.
template <class Format, int m>
MR_INLINE inline void add_half_group(const typename Format::Block& block, int g, int half,
                                     const int32x4_t (&scale)[2][2], const XBlock<m>& x, float32x4_t (&scaled)[m]) {
  Weights w;
  Format::weights(block, g, half, w);
  unrolled<m>([&](auto r) MR_INLINE {
    const int8x16_t first = vld1q_s8(x.q[r]), second = vld1q_s8(x.q[r] + 16);
    int32x4_t sum = dot_16<0>(first_sum<Format>(x.total[r]), w, first);
    if constexpr (Format::kScales == 1) {
      sum = vmulq_s32(dot_16<4>(sum, w, second), scale[0][half]);
    } else {
      const int32x4_t high = dot_16<4>(zero_sum(), w, second);
      sum = vmlaq_s32(vmulq_s32(sum, scale[0][half]), high, scale[1][half]);
    }
    scaled[r] = vfmaq_n_f32(scaled[r], vcvtq_f32_s32(sum), x.scale[r]);
  });
}

template <class Format, int m>
MR_INLINE inline void add_k_block(const typename Format::Block& block, const XBlock<m>* x, float32x4_t (&acc)[2][m]) {
  float32x4_t scaled[2][m], mins[2][m];
  unrolled<m>([&](auto r) MR_INLINE { scaled[0][r] = scaled[1][r] = mins[0][r] = mins[1][r] = vdupq_n_f32(0); });
  for (int g = 0; g < Format::kGroups; ++g) {
    int32x4_t scale[2][2];
    unrolled<Format::kScales>([&](auto s) MR_INLINE { Format::scales(block, g, s, scale[s]); });
    unrolled<2>([&](auto half) MR_INLINE { add_half_group<Format, m>(block, g, half, scale, x[g], scaled[half]); });
    if constexpr (Format::kMins) {
      int32x4_t min[2][2];
      unrolled<Format::kScales>([&](auto s) MR_INLINE { Format::mins(block, g, s, min[s]); });
      unrolled<2>([&](auto half) MR_INLINE {
        const float32x4_t first = vcvtq_f32_s32(min[0][half]);
        unrolled<m>([&](auto r) MR_INLINE { mins[half][r] = vfmaq_n_f32(mins[half][r], first, x[g].sum[0][r]); });
        if constexpr (Format::kScales == 2) {
          const float32x4_t more = vcvtq_f32_s32(vsubq_s32(min[1][half], min[0][half]));
          unrolled<m>([&](auto r) MR_INLINE { mins[half][r] = vfmaq_n_f32(mins[half][r], more, x[g].sum[1][r]); });
        }
      });
    }
  }
  unrolled<2>([&](auto half) MR_INLINE {
    const float32x4_t d = load_f16(block.d, half);
    unrolled<m>([&](auto r) MR_INLINE { acc[half][r] = vfmaq_f32(acc[half][r], scaled[half][r], d); });
    if constexpr (Format::kMins) {
      const float32x4_t dmin = load_f16(block.dmin, half);
      unrolled<m>([&](auto r) MR_INLINE { acc[half][r] = vfmsq_f32(acc[half][r], mins[half][r], dmin); });
    }
  });
}

template <class Format, int m, int streams>
__attribute__((noinline)) void multiply_strip(const LinearArgs& args, int64_t strip, int64_t m_begin,
                                              const XBlock<m>* x) {
  float32x4_t acc[streams][2][m];  // rows 0..3 and 4..7 of each strip
  unrolled<streams>(
      [&](auto s) MR_INLINE { unrolled<m>([&](auto r) MR_INLINE { acc[s][0][r] = acc[s][1][r] = vdupq_n_f32(0); }); });
  for (StripStreams<Format, streams> w(*args.weights, strip); w.more(); w.next(), x += Format::kGroups) {
    w.prefetch();
    unrolled<streams>([&](auto s) MR_INLINE {
      if constexpr (Format::kGroups == 1) {
        add_small_block<Format, m>(w.block(s), 0, *x, acc[s][0]);
        add_small_block<Format, m>(w.block(s), 1, *x, acc[s][1]);
      } else {
        add_k_block<Format, m>(w.block(s), x, acc[s]);
      }
    });
  }
  unrolled<streams>([&](auto s) MR_INLINE {
    unrolled<m>([&](auto r) MR_INLINE {
      write_four(args, m_begin + r, (strip + s) * kPackedRows, acc[s][0][r], true);
      write_four(args, m_begin + r, (strip + s) * kPackedRows + 4, acc[s][1][r], true);
    });
  });
}

// Tiles lie one after the other, four rows of x to a tile and what is left in the last: a tile's place follows from its
// first row.
template <int m, class Byte>
MR_INLINE inline auto* x_tile(Byte* x, int64_t first_row, int64_t k) {
  static_assert(sizeof(XBlock<m>) == m * sizeof(XBlock<1>));
  using Tile = std::conditional_t<std::is_const_v<Byte>, const XBlock<m>, XBlock<m>>;
  return reinterpret_cast<Tile*>(x + static_cast<size_t>(first_row * (k / 32)) * sizeof(XBlock<1>));
}

size_t strip_x_bytes(int64_t m, int64_t k) { return static_cast<size_t>(m * (k / 32)) * sizeof(XBlock<1>); }

void quantize_for_strips(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  const float unit = unit_of(args.weights->format);
  for_tiles<4>(m_begin, m_end, [&](int64_t row, auto rows) {
    quantize_tile(args.x, row, rows, rows, unit, x_tile<rows>(x, row, args.x.cols));
  });
}

// Strips go outermost: with several tiles of x each strip is read from memory for the first of them only.
template <class Format>
void multiply_strips(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  if (piece.m_end - piece.m_begin == 1) {
    return for_streams<kStreams<Format, 1>>(piece.strip_begin, piece.strip_end, [&](int64_t strip, auto streams) {
      multiply_strip<Format, 1, streams>(args, strip, piece.m_begin, x_tile<1>(x, piece.m_begin, args.weights->k));
    });
  }
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
    for_tiles<4>(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
      multiply_strip<Format, rows, 1>(args, strip, row, x_tile<rows>(x, row, args.weights->k));
    });
  }
}

void strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { multiply_strips<decltype(format)>(args, x, piece); });
}
