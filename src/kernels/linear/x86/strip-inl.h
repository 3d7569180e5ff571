// Packed weights straight from memory through registers, for up to four rows of x: decode and small batches.
// Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/rows8/tiles-inl.h"
#include "kernels/linear/x86/epilogue-inl.h"
#include "kernels/linear/x86/group-inl.h"

template <class Format, int m>
__attribute__((noinline)) void multiply_strip(const LinearArgs& args, int64_t strip, int64_t m_begin,
                                              const XBlock<m>* x) {
  const int64_t blocks = args.weights->k / (32 * Format::kGroups);
  const auto* block = reinterpret_cast<const typename Format::Block*>(args.weights->data) + strip * blocks;
  __m256 acc[m];
  unrolled<m>([&](auto r) MR_INLINE { acc[r] = _mm256_setzero_ps(); });
  for (int64_t b = 0; b < blocks; ++b, ++block) {
    prefetch_after(block);
    const Scales<Format> scales(*block);
    for (int g = 0; g < Format::kGroups; ++g, ++x) {
      add_group<Format, m>(
          *x, [&](auto j) MR_INLINE { return ready_quads<Format, j>(*block, g); },
          [&](auto s) MR_INLINE { return scales.scale(g, s); },
          [&](auto s) MR_INLINE { return min_step<Format>(scales, g, s); }, acc);
    }
  }
  unrolled<m>([&](auto r) MR_INLINE { write_eight(args, m_begin + r, strip * kPackedRows, acc[r], true); });
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
  const ZeroPoint zero = zero_point_of(args.weights->format);
  for_tiles<4>(m_begin, m_end, [&](int64_t row, auto rows) {
    quantize_tile(args.x, row, rows, rows, zero, x_tile<rows>(x, row, args.x.cols));
  });
}

template <class Format>
void multiply_strips(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
    for_tiles<4>(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
      multiply_strip<Format, rows>(args, strip, row, x_tile<rows>(x, row, args.weights->k));
    });
  }
}

void strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { multiply_strips<decltype(format)>(args, x, piece); });
}
