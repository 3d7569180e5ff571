// Decode and small batches in 512-bit registers: two strips of weights by up to eight rows of x. Each quad of weights
// is unpacked once for these rows. Included inside a target region, after Dot and strip-inl.h.
#pragma once

MR_INLINE inline __m512i side_by_side(__m256i first, __m256i second) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}
MR_INLINE inline __m512 side_by_side(__m256 first, __m256 second) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(first), second, 1);
}

struct WideQuads {
  __m512i low, high;  // quads j and j + 4 of both strips
};

template <class Format, int j, class Block>
MR_INLINE inline WideQuads wide_quads(const Block& first, const Block& second, int g) {
  if constexpr (requires { Format::nibbles(first, g); }) {  // joins the strips before it separates the nibbles
    const __m512i both = side_by_side(load_256(Format::nibbles(first, g)[j]), load_256(Format::nibbles(second, g)[j]));
    const __m512i mask = _mm512_set1_epi8(15);
    return {_mm512_and_si512(both, mask), _mm512_and_si512(_mm512_srli_epi16(both, 4), mask)};
  } else {
    const QuadPair a = ready_quads<Format, j>(first, g), b = ready_quads<Format, j>(second, g);
    return {side_by_side(a.low, b.low), side_by_side(a.high, b.high)};
  }
}

// As multiply_strip, for `strip` and the next one, which write_eight() ignores if it lies outside y. Adds in the same
// order.
template <class Format, int m>
__attribute__((noinline)) void multiply_two_strips(const LinearArgs& args, int64_t strip, int64_t m_begin,
                                                   const XBlock<m>* x) {
  constexpr int kScales = Format::kScales;
  __m512 acc[m];
  unrolled<m>([&](auto r) MR_INLINE { acc[r] = _mm512_setzero_ps(); });
  const int second_stream = (strip + 1) * kPackedRows < columns_of(args) ? 1 : 0;
  for (StripStreams<Format, 2> w(*args.weights, strip); w.more(); w.next()) {
    const auto &first = w.block(0), &second = w.block(second_stream);
    const Scales<Format> of_first(first), of_second(second);
    for (int g = 0; g < Format::kGroups; ++g, ++x) {
      w.prefetch(g);
      __m512i sums[kScales][m];
      unrolled<kScales>([&](auto s) MR_INLINE {
        unrolled<m>([&](auto r) MR_INLINE {
          sums[s][r] = Dot::zero<Format>() != 0 ? _mm512_set1_epi32(x->start[s][r]) : _mm512_setzero_si512();
        });
      });
      unrolled<4>([&](auto j) MR_INLINE {
        const WideQuads q = wide_quads<Format, j>(first, second, g);
        unrolled<m>([&](auto r) MR_INLINE {
          sums[0][r] = _mm512_dpbusd_epi32(sums[0][r], q.low, broadcast_quad_512(x->q[r] + 4 * j));
        });
        unrolled<m>([&](auto r) MR_INLINE {
          auto& sum = sums[kScales - 1][r];
          sum = _mm512_dpbusd_epi32(sum, q.high, broadcast_quad_512(x->q[r] + 16 + 4 * j));
        });
      });
      unrolled<kScales>([&](auto s) MR_INLINE {
        const __m512 of_w = side_by_side(of_first.scale(g, s), of_second.scale(g, s));
        unrolled<m>([&](auto r) MR_INLINE {
          const __m512 both = _mm512_mul_ps(of_w, _mm512_set1_ps(x->scale[r]));
          acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[s][r]), both, acc[r]);
        });
      });
      unrolled<Format::kMins ? kScales : 0>([&](auto s) MR_INLINE {
        const __m512 min = side_by_side(min_step<Format>(of_first, g, s), min_step<Format>(of_second, g, s));
        unrolled<m>([&](auto r) MR_INLINE { acc[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(x->sum[s][r]), acc[r]); });
      });
    }
  }
  unrolled<m>([&](auto r) MR_INLINE {
    write_eight(args, m_begin + r, strip * kPackedRows, _mm512_castps512_ps256(acc[r]), true);
    write_eight(args, m_begin + r, (strip + 1) * kPackedRows, _mm512_extractf32x8_ps(acc[r], 1), true);
  });
}

// As multiply_strips. Called with y narrowed to the piece (within_piece).
template <class Format>
void multiply_strip_pairs(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; strip += 2) {
    for_tiles<8>(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
      multiply_two_strips<Format, rows>(args, strip, row, x_tile<rows>(x, row, args.weights->k));
    });
  }
}

void strip_pairs(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { multiply_strip_pairs<decltype(format)>(args, x, piece); });
}

// One row of x. Unpacking K-blocks takes as long as reading them; of the other formats, more streams are faster.
void row_of_strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) {
    using Format = decltype(format);
    if constexpr (Format::kGroups > 1) {
      multiply_strip_pairs<Format>(args, x, piece);
    } else {
      multiply_row<Format>(args, x, piece);
    }
  });
}
