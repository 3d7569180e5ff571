#include "kernels/attention/x86/tile_products.h"

#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // false positives in GCC 12's intrinsics
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

MR_BEGIN_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16",
                "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")
namespace millrace {
namespace {

#include "hardware/amx-inl.h"

constexpr int64_t kRow = 64;  // bytes per row of a tile

// Rounds two vectors of 16 numbers, the first to the lower half.
inline __m512i round_32(__m512 first, __m512 second) { return (__m512i)_mm512_cvtne2ps_pbh(second, first); }

template <DType dtype>
inline __m512i load_32(const uint16_t* first, const uint16_t* second) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  if constexpr (dtype == DType::BF16) return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  return round_32(_mm512_cvtph_ps(a), _mm512_cvtph_ps(b));
}

// Transposes 16 rows of 16 32-bit words.
inline void transpose_16x16(__m512i (&v)[16]) {
  __m512i t[16];
  MR_UNROLL for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  MR_UNROLL for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now quarter q of v[4 r + c] holds column 4 q + c of rows 4 r to 4 r + 3.
  MR_UNROLL for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x44);
    t[4 + c] = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xee);
    t[8 + c] = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x44);
    t[12 + c] = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xee);
  }
  MR_UNROLL for (int c = 0; c < 4; ++c) {
    v[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
    v[4 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
    v[8 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
    v[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
  }
}

inline const uint16_t* element(const std::byte* row, int64_t i) { return reinterpret_cast<const uint16_t*>(row) + i; }

template <DType dtype>
void pack_rows(const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out, int64_t width) {
  for (int64_t row = 0; row < count; row += 16, out += 16 * width) {
    for (int64_t i = 0; i < cols; i += 32) {
      __m512i v[16];
      MR_UNROLL for (int r = 0; r < 16; ++r) {
        v[r] = load_32<dtype>(element(rows[row + r], i), element(rows[row + r], i + 16));
      }
      transpose_16x16(v);
      MR_UNROLL for (int r = 0; r < 16; ++r) _mm512_storeu_si512(out + 16 * i + 32 * r, v[r]);
    }
  }
}

// Interleaves two rows as pairs of elements.
template <DType dtype>
void pack_columns(const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out, int64_t width) {
  const __m512i in_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                            21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (int64_t i = 0; i < cols; i += 16, out += 16 * width) {
    for (int64_t row = 0; row < count; row += 2) {
      const __m512i both = load_32<dtype>(element(rows[row], i), element(rows[row + 1], i));
      _mm512_storeu_si512(out + 16 * row, _mm512_permutexvar_epi16(in_turns, both));
    }
  }
}

// 32 columns and 32 (or 16) rows of C. Tile registers 0 to 3 hold C, 4 and 5 A, 6 and 7 B.
template <bool second>
inline void multiply_block(const uint16_t* left, const uint16_t* right, int64_t width, int64_t depth, float* c,
                           int64_t c_stride, bool accumulate) {
  const int64_t c_bytes = 4 * c_stride, a_bytes = 2 * width;
  if (accumulate) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + 16, c_bytes);
    if constexpr (second) {
      _tile_loadd(2, c + 16 * c_stride, c_bytes);
      _tile_loadd(3, c + 16 * c_stride + 16, c_bytes);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += 32) {
    _tile_loadd(6, right + 16 * k, kRow);
    _tile_loadd(4, left + k, a_bytes);
    _tile_loadd(7, right + 16 * (width + k), kRow);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (second) {
      _tile_loadd(5, left + 16 * width + k, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + 16, c_bytes);
  if constexpr (second) {
    _tile_stored(2, c + 16 * c_stride, c_bytes);
    _tile_stored(3, c + 16 * c_stride + 16, c_bytes);
  }
}

}  // namespace

TileProducts::TileProducts() { load_tile_config(); }
TileProducts::~TileProducts() { release_tiles(); }

void TileProducts::pack_left(const float* a, int64_t stride, int64_t rows, int64_t cols, uint16_t* out, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, a += stride, out += width) {
    for (int64_t i = 0; i < cols; i += 32) {
      _mm512_storeu_si512(out + i, round_32(_mm512_loadu_ps(a + i), _mm512_loadu_ps(a + i + 16)));
    }
  }
}

void TileProducts::pack_right(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                              int64_t width) {
  if (dtype == DType::F16) return pack_rows<DType::F16>(rows, count, cols, out, width);
  pack_rows<DType::BF16>(rows, count, cols, out, width);
}

void TileProducts::pack_right_columns(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols,
                                      uint16_t* out, int64_t width) {
  if (dtype == DType::F16) return pack_columns<DType::F16>(rows, count, cols, out, width);
  pack_columns<DType::BF16>(rows, count, cols, out, width);
}

void TileProducts::multiply(const uint16_t* left, const uint16_t* right, int64_t width, int64_t rows, int64_t cols,
                            int64_t depth, float* c, int64_t c_stride, bool accumulate) {
  finish_writes();
  for (int64_t j = 0; j < cols; j += 32) {
    for (int64_t i = 0; i < rows; i += 32) {
      const auto block = i + 32 <= rows ? multiply_block<true> : multiply_block<false>;
      block(left + i * width, right + j * width, width, depth, c + i * c_stride + j, c_stride, accumulate);
    }
  }
}

}  // namespace millrace
MR_END_TARGET
