// The inner step of the 256-bit kernels: 8 rows of weights by m rows of x, 32 elements of each. Included inside a
// target region, after Dot.
#pragma once

#include "kernels/linear/rows8/x86/activations-inl.h"

// quads(j) returns quads j and j + 4; scale(s) and min(s) return the group's f32 scales and minima.
template <class Format, int m, class Block, class Quads, class Scale, class Min>
MR_INLINE inline void add_group(const Block& x, Quads quads, Scale scale, Min min, __m256 (&acc)[m]) {
  constexpr int kScales = Format::kScales, kCount = 8 / kScales;
  Dot::Sum<Format, kCount> sums[kScales][m];
  unrolled<kScales>([&](auto s) MR_INLINE { unrolled<m>([&](auto r) MR_INLINE { sums[s][r].start(x.start[s][r]); }); });
  unrolled<4>([&](auto j) MR_INLINE {
    constexpr int kFirst = j * (3 - kScales), kSecond = kScales == 1 ? kFirst + 1 : kFirst;
    const QuadPair w = quads(j);
    unrolled<m>([&](auto r) MR_INLINE { sums[0][r].template add<kFirst>(w.low, broadcast_quad(x.q[r] + 4 * j)); });
    unrolled<m>([&](auto r) MR_INLINE {
      sums[kScales - 1][r].template add<kSecond>(w.high, broadcast_quad(x.q[r] + 16 + 4 * j));
    });
  });
  unrolled<kScales>([&](auto s) MR_INLINE {
    const __m256 of_w = scale(s);
    unrolled<m>([&](auto r) MR_INLINE {
      const __m256 both = _mm256_mul_ps(of_w, _mm256_set1_ps(x.scale[r]));
      acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[s][r].wide), both, acc[r]);
    });
  });
  unrolled<Format::kMins ? kScales : 0>([&](auto s) MR_INLINE {
    const __m256 of_w = min(s);
    unrolled<m>([&](auto r) MR_INLINE { acc[r] = _mm256_fmadd_ps(of_w, _mm256_set1_ps(x.sum[s][r]), acc[r]); });
  });
}

// Minima for add_group: the second minus the first, since the first sum of x covers both halves.
template <class Format>
MR_INLINE inline __m256 min_step(const Scales<Format>& scales, int g, int s) {
  return s == 0 ? scales.min(g, 0) : _mm256_sub_ps(scales.min(g, 1), scales.min(g, 0));
}

template <class Format, int j>
MR_INLINE inline QuadPair ready_quads(const typename Format::Block& block, int g) {
  const QuadPair q = Format::template quads<j>(block, g);
  return {Dot::ready<Format>(q.low), Dot::ready<Format>(q.high)};
}
