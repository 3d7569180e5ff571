// The micro-kernel of panels for AMX tiles of bf16: 32 rows of weights by up to 32 rows of x. Scales are applied while
// unpacking, so that products need no attention until the end of a stretch: int8 tiles are twice as fast, but a scale
// per 32 elements would cost more than that. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/tiles-inl.h"
#include "kernels/linear/x86/epilogue-inl.h"
#include "kernels/linear/x86/unpack-inl.h"
// After the formats:
#include "kernels/linear/rows8/panel-inl.h"

// Two tiles of 16 rows of weights, as pairs of elements.
struct AmxGroup {
  uint16_t q[2][16][16][2];  // [tile][pair][row]

  template <class Format>
  MR_INLINE void set(const typename Format::Block& block, int g, int which) {
    const Scales<Format> scales(block);
    unrolled<Format::kScales>([&](auto s) MR_INLINE {
      const __m256 scale = scales.scale(g, s);
      __m256 min = _mm256_mul_ps(scale, _mm256_set1_ps(-Format::kZero));
      if constexpr (Format::kMins) min = _mm256_add_ps(min, scales.min(g, s));
      unrolled<4>([&](auto j) MR_INLINE {
        const QuadPair w = Format::template quads<j>(block, g);
        if (s == 0) set_quad<Format>(w.low, scale, min, j, which);
        if (s == Format::kScales - 1) set_quad<Format>(w.high, scale, min, j + 4, which);
      });
    });
  }

  template <class Format>
  MR_INLINE void set_quad(__m256i quad, __m256 scale, __m256 min, int j, int which) {
    __m256i element[4];
    unrolled<4>([&](auto i) MR_INLINE {
      const __m256i top = _mm256_slli_epi32(quad, 24 - 8 * i);
      const __m256i q = Format::kSigned ? _mm256_srai_epi32(top, 24) : _mm256_srli_epi32(top, 24);
      element[i] = _mm256_castps_si256(_mm256_fmadd_ps(_mm256_cvtepi32_ps(q), scale, min));
    });
    unrolled<2>([&](auto pair) MR_INLINE {
      const __m256i both = bf16_pair(element[2 * pair], element[2 * pair + 1]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q[which / 2][2 * j + pair][which % 2 * 8]), both);
    });
  }

  // Rounded: the top halves of two f32 side by side.
  MR_INLINE static __m256i bf16_pair(__m256i low, __m256i high) {
    const __m256i half = _mm256_set1_epi32(0x8000);
    return _mm256_blend_epi16(_mm256_srli_epi32(_mm256_add_epi32(low, half), 16), _mm256_add_epi32(high, half), 0xaa);
  }
};

struct AmxXBlock {
  uint16_t q[2][16][32];  // [tile][row]
};

MR_INLINE inline __m256i to_bf16(const float* x) {  // sixteen elements
  __m256i half[2];
  unrolled<2>([&](auto i) MR_INLINE {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
    half[i] = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
  });
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(half[0], half[1]), 0xd8);
}

void convert_x(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const int64_t groups = args.x.cols / 32;
  for (int64_t m = m_begin; m < m_end; m += 32) {
    auto* tile = reinterpret_cast<AmxXBlock*>(out) + m / 32 * groups;
    for (int64_t r = 0; r < 32; ++r) {
      const bool valid = m + r < m_end;
      const float* row = args.x.row<float>(valid ? m + r : m);
      for (int64_t i = 0; i < 2 * groups; ++i) {
        auto* to = reinterpret_cast<__m256i*>(tile[i / 2].q[r / 16][r % 16] + i % 2 * 16);
        _mm256_storeu_si256(to, valid ? to_bf16(row + 16 * i) : _mm256_setzero_si256());
      }
    }
  }
}

// All eight tile registers in full: 16 rows of 64 bytes.
class Tiles {
 public:
  Tiles() {
    const Config config;
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;

 private:
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
};

// Registers 0 to 3 hold the results [tile of x][tile of weights], 4 and 5 x, 6 and 7 weights.
template <bool second>
MR_INLINE inline void multiply_tiles(const AmxGroup* w, const AmxXBlock* x, int64_t groups,
                                     float (&sums)[2][2][16][16]) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t g = 0; g < groups; ++g, ++w, ++x) {
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
  _tile_stored(0, sums[0][0], 64);
  _tile_stored(1, sums[0][1], 64);
  _tile_stored(2, sums[1][0], 64);
  _tile_stored(3, sums[1][1], 64);
}

__attribute__((noinline)) void multiply_amx(const LinearArgs& args, const AmxGroup* w, const AmxXBlock* x,
                                            Stretch stretch, int64_t strip, int64_t row, int64_t rows) {
  alignas(64) float sums[2][2][16][16];
  if (rows > 16) multiply_tiles<true>(w, x, stretch.count, sums);
  if (rows <= 16) multiply_tiles<false>(w, x, stretch.count, sums);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < 4; ++i) {
      const __m256 eight = _mm256_load_ps(sums[r / 16][i / 2][r % 16] + i % 2 * 8);
      write_eight(args, row + r, (strip + i) * kPackedRows, eight, stretch.first == 0);
    }
  }
}

struct AmxMicro {
  template <class Format>
  using Group = AmxGroup;
  using XBlock = AmxXBlock;
  static constexpr int kRows = 32;
  static constexpr int64_t kJoined = 4, kStrips = 4, kGroups = 24;
  static constexpr size_t kBytes = kGroups * sizeof(AmxGroup);

  template <class Format>
  MR_INLINE static void unpack(const typename Format::Block& block, int g, int which, AmxGroup& to) {
    to.set<Format>(block, g, which);
  }

  template <class Format, int m>
  static void multiply(const LinearArgs& args, const AmxGroup* panel, const XBlock* x, Stretch stretch, int64_t strip,
                       int64_t row) {
    multiply_amx(args, panel, x, stretch, strip, row, m);
  }
};

void amx_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const Tiles tiles;
  panels<AmxMicro>(args, x, scratch, piece);
}
