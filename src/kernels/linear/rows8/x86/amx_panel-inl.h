// AMX panels of bf16: 32 rows of weights by up to 32 rows of x. Scales are applied during unpacking, so the products
// need no scaling. int8 tiles are twice as fast, but applying a scale per 32 elements would cost more than that gains,
// and one scale for more elements rounds the weights. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/tuned.h"
#include "kernels/linear/rows8/x86/amx_tiles-inl.h"
#include "kernels/linear/rows8/x86/unpack-inl.h"
// Must follow the formats:
#include "kernels/linear/rows8/panel-inl.h"

MR_INLINE inline __m256i to_bf16(__m512 v) { return (__m256i)_mm512_cvtneps_pbh(v); }

MR_INLINE inline void transpose_8x8(__m256i (&v)[8]) {
  __m256i t[8], u[8];
  unrolled<4>([&](auto i) MR_INLINE {
    t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  });
  unrolled<2>([&](auto half) MR_INLINE {
    unrolled<2>([&](auto i) MR_INLINE {
      u[4 * half + 2 * i] = _mm256_unpacklo_epi64(t[4 * half + i], t[4 * half + 2 + i]);
      u[4 * half + 2 * i + 1] = _mm256_unpackhi_epi64(t[4 * half + i], t[4 * half + 2 + i]);
    });
  });
  unrolled<4>([&](auto i) MR_INLINE {
    v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  });
}

// The scale (or minimum) of each of eight rows, repeated four times, for four elements of four rows at a time.
struct EachFourTimes {
  __m512 half[2];
  MR_INLINE explicit EachFourTimes(__m256 rows) {
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512 wide = _mm512_castps256_ps512(rows);
    half[0] = _mm512_permutexvar_ps(lanes, wide);
    half[1] = _mm512_permutexvar_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(4)), wide);
  }
};

// Two tiles of 16 rows of weights, stored as pairs of elements.
struct AmxGroup {
  uint16_t q[2][16][16][2];  // [tile][pair][row]

  MR_INLINE __m256i* eight_rows(int pair, int which) {
    return reinterpret_cast<__m256i*>(q[which / 2][pair][which % 2 * 8]);
  }

  template <class Format>
  MR_INLINE void set(const typename Format::Block& block, int g, int which) {
    const Scales<Format> scales(block);
    unrolled<Format::kScales>([&](auto s) MR_INLINE {
      const __m256 of_rows = scales.scale(g, s);
      __m256 min_of_rows = _mm256_mul_ps(of_rows, _mm256_set1_ps(-Format::kZero));
      if constexpr (Format::kMins) min_of_rows = _mm256_add_ps(min_of_rows, scales.min(g, s));
      const EachFourTimes scale(of_rows), min(min_of_rows);
      unrolled<4>([&](auto j) MR_INLINE {
        const QuadPair w = Format::template quads<j>(block, g);
        if (s == 0) set_quad<Format>(w.low, scale, min, j, which);
        if (s == Format::kScales - 1) set_quad<Format>(w.high, scale, min, j + 4, which);
      });
    });
  }

  // Stores four elements of eight rows: the first and the second pair belong to different rows of the tile.
  template <class Format>
  MR_INLINE void set_quad(__m256i quad, const EachFourTimes& scale, const EachFourTimes& min, int j, int which) {
    __m256i four_rows[2];
    unrolled<2>([&](auto half) MR_INLINE {
      const __m128i bytes = _mm256_extracti128_si256(quad, half);
      const __m512i q = Format::kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
      four_rows[half] = to_bf16(_mm512_fmadd_ps(_mm512_cvtepi32_ps(q), scale.half[half], min.half[half]));
    });
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14),
                  odd = _mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15);
    _mm256_storeu_si256(eight_rows(2 * j, which), _mm256_permutex2var_epi32(four_rows[0], even, four_rows[1]));
    _mm256_storeu_si256(eight_rows(2 * j + 1, which), _mm256_permutex2var_epi32(four_rows[0], odd, four_rows[1]));
  }

  // Loads 32 elements from k on of eight plain rows; elements outside the matrix become zero.
  MR_INLINE void set_plain(const LinearWeights& weights, int64_t n, int64_t k, int which) {
    const int64_t count = std::min<int64_t>(32, weights.k - k);
    const __mmask32 valid = count == 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
    __m256i pairs[2][8];  // [elements 0..15, 16..31][row]
    for (int64_t r = 0; r < kPackedRows; ++r) {
      const auto* row =
          reinterpret_cast<const uint16_t*>(weights.data) + std::min(n + r, weights.n - 1) * weights.k + k;
      const __m512i bits = _mm512_maskz_loadu_epi16(n + r < weights.n ? valid : 0, row);
      unrolled<2>([&](auto half) MR_INLINE {
        pairs[half][r] = _mm512_extracti64x4_epi64(bits, half);
      });
    }
    unrolled<2>([&](auto half) MR_INLINE {
      transpose_8x8(pairs[half]);
      for (int pair = 0; pair < 8; ++pair) _mm256_storeu_si256(eight_rows(8 * half + pair, which), pairs[half][pair]);
    });
  }
};

struct AmxXBlock {
  uint16_t q[2][16][32];  // [tile][row]
};

void convert_x(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const int64_t groups = (args.x.cols + 31) / 32;
  for (int64_t m = m_begin; m < m_end; m += 32) {
    auto* tile = reinterpret_cast<AmxXBlock*>(out) + m / 32 * groups;
    for (int64_t r = 0; r < 32; ++r) {
      const bool exists = m + r < m_end;
      const float* row = args.x.row<float>(exists ? m + r : m);
      for (int64_t k = 0; k < 32 * groups; k += 16) {
        const int64_t count = exists ? std::clamp<int64_t>(args.x.cols - k, 0, 16) : 0;
        const __mmask16 valid = static_cast<__mmask16>((1u << count) - 1);
        auto* to = reinterpret_cast<__m256i*>(tile[k / 32].q[r / 16][r % 16] + k % 32);
        _mm256_storeu_si256(to, to_bf16(_mm512_maskz_loadu_ps(valid, row + std::min(k, args.x.cols - 1))));
      }
    }
  }
}

// Tile registers 0 to 3 hold the results, 4 and 5 x, 6 and 7 weights.
template <bool second>
MR_INLINE inline void multiply_tiles(const AmxGroup* w, const AmxXBlock* x, Stretch stretch, BlockSums& sums) {
  finish_writes();
  if (stretch.first == 0) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums.rows[0], sizeof sums.rows[0]);
    _tile_loadd(1, sums.rows[0] + 16, sizeof sums.rows[0]);
    if constexpr (second) {
      _tile_loadd(2, sums.rows[16], sizeof sums.rows[0]);
      _tile_loadd(3, sums.rows[16] + 16, sizeof sums.rows[0]);
    }
  }
  for (int64_t g = 0; g < stretch.count; ++g, ++w, ++x) {
    _tile_loadd(6, w->q[0], 64);
    _tile_loadd(4, x->q[0], 64);
    _tile_loadd(7, w->q[1], 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (second) {
      _tile_loadd(5, x->q[1], 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  store_tiles<second>(sums.rows);
}

struct AmxMicro {
  template <class Format>
  using Group = AmxGroup;
  using XBlock = AmxXBlock;
  static constexpr int kRows = 32;
  static constexpr int64_t kJoined = 4, kStrips = 4, kGroups = MR_AMX_GROUPS;
  static constexpr int64_t kSums = kMostPanels * (MR_PANEL_ROWS + kRows - 1) / kRows;  // per piece of work
  static constexpr size_t kBytes = kSums * sizeof(BlockSums) + kGroups * sizeof(AmxGroup);

  template <class Format>
  MR_INLINE static void unpack(const typename Format::Block& block, int g, int which, AmxGroup& to) {
    to.set<Format>(block, g, which);
  }
  template <class Format>
  static void unpack_plain(const LinearWeights& weights, int64_t strip, int64_t group, int which, AmxGroup& to) {
    to.set_plain(weights, strip * kPackedRows, 32 * group, which);
  }
};

// As multiply_panels, but writes y only once, at the end of k.
template <class Format>
void multiply_amx(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const int64_t groups = (args.weights->k + 31) / 32;
  const int64_t most = even_stretch(groups, AmxMicro::kGroups, Format::kGroups);
  auto* sums = reinterpret_cast<BlockSums*>(scratch);
  auto* panel = reinterpret_cast<AmxGroup*>(sums + AmxMicro::kSums);
  for (Stretch stretch{0, 0}; stretch.first < groups; stretch.first += most) {
    stretch.count = std::min(most, groups - stretch.first);
    BlockSums* sum = sums;
    for (int64_t strip = piece.strip_begin; strip < piece.strip_end; strip += AmxMicro::kStrips) {
      unpack_panel<AmxMicro, Format>(*args.weights, stretch, strip,
                                     std::min(strip + AmxMicro::kStrips, piece.strip_end), panel);
      for (int64_t row = piece.m_begin; row < piece.m_end; row += AmxMicro::kRows, ++sum) {
        const auto* tile = reinterpret_cast<const AmxXBlock*>(x) + row / AmxMicro::kRows * groups + stretch.first;
        const int64_t rows = std::min<int64_t>(AmxMicro::kRows, piece.m_end - row);
        if (rows > 16) multiply_tiles<true>(panel, tile, stretch, *sum);
        if (rows <= 16) multiply_tiles<false>(panel, tile, stretch, *sum);
        if (stretch.first + stretch.count == groups) write_sums(args, *sum, strip, row, rows);
      }
    }
  }
}

void amx_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const Tiles tiles;
  with_any_format(args.weights->format, [&](auto format) { multiply_amx<decltype(format)>(args, x, scratch, piece); });
}
