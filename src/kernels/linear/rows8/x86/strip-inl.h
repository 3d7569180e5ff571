// Decode and small batches: multiplies packed weights straight from memory with up to four rows of x. Included inside a
// target region, after Dot.
#pragma once

#include "kernels/linear/rows8/x86/epilogue-inl.h"
#include "kernels/linear/rows8/x86/group-inl.h"
// Must follow the formats:
#include "kernels/linear/rows8/streams-inl.h"

template <class Format, int m, int streams>
__attribute__((noinline)) void multiply_strip(const LinearArgs& args, int64_t strip, int64_t m_begin,
                                              const XBlock<m>* x) {
  __m256 acc[streams][m];
  unrolled<streams>([&](auto s) MR_INLINE { unrolled<m>([&](auto r) MR_INLINE { acc[s][r] = _mm256_setzero_ps(); }); });
  for (StripStreams<Format, streams> w(*args.weights, strip); w.more(); w.next(), x += Format::kGroups) {
    unrolled<streams>([&](auto s) MR_INLINE {
      const auto& block = w.block(s);
      const Scales<Format> scales(block);
      for (int g = 0; g < Format::kGroups; ++g) {
        if constexpr (s == 0) w.prefetch(g);
        add_group<Format, m>(
            x[g], [&](auto j) MR_INLINE { return ready_quads<Format, j>(block, g); },
            [&](auto i) MR_INLINE { return scales.scale(g, i); },
            [&](auto i) MR_INLINE { return min_step<Format>(scales, g, i); }, acc[s]);
      }
    });
  }
  unrolled<streams>([&](auto s) MR_INLINE {
    unrolled<m>([&](auto r) MR_INLINE { write_eight(args, m_begin + r, (strip + s) * kPackedRows, acc[s][r], true); });
  });
}

// Tiles of x are contiguous, of `most` rows each; the last one holds the rest. The offset of a tile thus follows from
// its first row.
template <int m, class Byte>
MR_INLINE inline auto* x_tile(Byte* x, int64_t first_row, int64_t k) {
  static_assert(sizeof(XBlock<m>) == m * sizeof(XBlock<1>));
  using Tile = std::conditional_t<std::is_const_v<Byte>, const XBlock<m>, XBlock<m>>;
  return reinterpret_cast<Tile*>(x + static_cast<size_t>(first_row * (k / 32)) * sizeof(XBlock<1>));
}

size_t strip_x_bytes(int64_t m, int64_t k) { return static_cast<size_t>(m * (k / 32)) * sizeof(XBlock<1>); }

template <int most>
void quantize_for_strips(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  const ZeroPoint zero = zero_point_of(args.weights->format);
  for_tiles<most>(m_begin, m_end, [&](int64_t row, auto rows) {
    quantize_tile(args.x, row, rows, rows, zero, x_tile<rows>(x, row, args.x.cols));
  });
}

// One row of x.
template <class Format>
void multiply_row(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  for_streams<kStreams<Format, 1>>(piece.strip_begin, piece.strip_end, [&](int64_t strip, auto streams) {
    multiply_strip<Format, 1, streams>(args, strip, piece.m_begin, x_tile<1>(x, piece.m_begin, args.weights->k));
  });
}

// The loop over strips is the outermost: with several tiles of x, only the first one reads a strip from memory.
template <class Format>
void multiply_strips(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  if (piece.m_end - piece.m_begin == 1) return multiply_row<Format>(args, x, piece);
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
    for_tiles<4>(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
      multiply_strip<Format, rows, 1>(args, strip, row, x_tile<rows>(x, row, args.weights->k));
    });
  }
}
