// Micro-kernel of panels in 512-bit registers: 32 rows of weights by up to 6 rows of x. With two vectors of weights,
// each broadcast of x serves two products; 12 integer sums and 12 results leave enough registers for the operands.
// Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/rows8/x86/panel-inl.h"

MR_INLINE inline __m512i broadcast_quad_512(const int8_t* quad) {
  int32_t word;
  std::memcpy(&word, quad, sizeof word);
  return _mm512_set1_epi32(word);
}

// Multiplies the quads of scale `s` with m rows of x and adds the scaled sums to the results.
template <class Format, int m, int s>
MR_INLINE inline void add_part_512(const DotGroup<Format, 4>& w, const XBlock<6>& x, __m512 (&acc)[2][m]) {
  constexpr int kCount = 8 / Format::kScales;
  __m512i sums[2][m];
  unrolled<m>([&](auto r) MR_INLINE {
    sums[0][r] = sums[1][r] = Dot::zero<Format>() != 0 ? _mm512_set1_epi32(x.start[s][r]) : _mm512_setzero_si512();
  });
  unrolled<kCount>([&](auto i) MR_INLINE {
    constexpr int j = s * kCount + i;
    const __m512i low = _mm512_loadu_si512(w.q[j][0]), high = _mm512_loadu_si512(w.q[j][16]);
    unrolled<m>([&](auto r) MR_INLINE {
      const __m512i quad = broadcast_quad_512(x.q[r] + 4 * j);
      sums[0][r] = _mm512_dpbusd_epi32(sums[0][r], low, quad);
      sums[1][r] = _mm512_dpbusd_epi32(sums[1][r], high, quad);
    });
  });
  unrolled<2>([&](auto half) MR_INLINE {
    const __m512 of_w = _mm512_loadu_ps(w.scale[s] + 16 * half);
    unrolled<m>([&](auto r) MR_INLINE {
      const __m512 both = _mm512_mul_ps(of_w, _mm512_set1_ps(x.scale[r]));
      acc[half][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[half][r]), both, acc[half][r]);
    });
    if constexpr (Format::kMins) {
      const __m512 min = _mm512_loadu_ps(w.min[s] + 16 * half);
      unrolled<m>([&](auto r)
                      MR_INLINE { acc[half][r] = _mm512_fmadd_ps(min, _mm512_set1_ps(x.sum[s][r]), acc[half][r]); });
    }
  });
}

template <class Format, int m>
__attribute__((noinline)) void multiply_tile_512(const LinearArgs& args, const DotGroup<Format, 4>* w,
                                                 const XBlock<6>* x, Stretch stretch, int64_t strip, int64_t row) {
  __m512 acc[2][m];
  unrolled<m>([&](auto r) MR_INLINE { acc[0][r] = acc[1][r] = _mm512_setzero_ps(); });
  for (int64_t g = 0; g < stretch.count; ++g, ++w, ++x) {
    unrolled<Format::kScales>([&](auto s) MR_INLINE { add_part_512<Format, m, s>(*w, *x, acc); });
  }
  const bool fresh = stretch.first == 0;
  unrolled<m>([&](auto r) MR_INLINE {
    unrolled<2>([&](auto half) MR_INLINE {
      const int64_t n = strip * kPackedRows + 16 * half;
      write_eight(args, row + r, n, _mm512_castps512_ps256(acc[half][r]), fresh);
      write_eight(args, row + r, n + 8, _mm512_extractf32x8_ps(acc[half][r], 1), fresh);
    });
  });
}

struct Micro512 {
  template <class Format>
  using Group = DotGroup<Format, 4>;
  using XBlock = ::millrace::XBlock<6>;
  static constexpr int kRows = 6;
  static constexpr int64_t kJoined = 4, kStrips = 4, kGroups = 24;
  static constexpr size_t kBytes = kGroups * kLargestGroup<4>;

  template <class Format>
  MR_INLINE static void unpack(const typename Format::Block& block, int g, int which, Group<Format>& to) {
    to.set(block, g, which);
  }

  template <class Format, int m>
  static void multiply(const LinearArgs& args, const Group<Format>* panel, const XBlock* x, Stretch stretch,
                       int64_t strip, int64_t row) {
    multiply_tile_512<Format, m>(args, panel, x, stretch, strip, row);
  }
};
