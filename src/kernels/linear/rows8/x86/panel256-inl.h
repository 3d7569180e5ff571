// Micro-kernel of panels in 256-bit registers: 8 rows of weights by up to 4 rows of x. Included inside a target region,
// after Dot.
#pragma once

#include "kernels/linear/rows8/x86/panel-inl.h"

template <class Format, int m>
__attribute__((noinline)) void multiply_tile_256(const LinearArgs& args, const DotGroup<Format, 1>* w,
                                                 const XBlock<4>* x, Stretch stretch, int64_t strip, int64_t row) {
  __m256 acc[m];
  unrolled<m>([&](auto r) MR_INLINE { acc[r] = _mm256_setzero_ps(); });
  for (int64_t g = 0; g < stretch.count; ++g, ++w, ++x) {
    add_group<Format, m>(
        *x,
        [&](auto j) MR_INLINE {
          return QuadPair{load_256(w->q[j]), load_256(w->q[j + 4])};
        },
        [&](auto s) MR_INLINE { return _mm256_loadu_ps(w->scale[s]); },
        [&](auto s) MR_INLINE { return _mm256_loadu_ps(w->min[s]); }, acc);
  }
  unrolled<m>([&](auto r) MR_INLINE { write_eight(args, row + r, strip * kPackedRows, acc[r], stretch.first == 0); });
}

struct Micro256 {
  template <class Format>
  using Group = DotGroup<Format, 1>;
  using XBlock = ::millrace::XBlock<4>;
  static constexpr int kRows = 4;
  static constexpr int64_t kJoined = 1, kStrips = 4, kGroups = 24;
  static constexpr size_t kBytes = kStrips * kGroups * kLargestGroup<1>;

  template <class Format>
  MR_INLINE static void unpack(const typename Format::Block& block, int g, int which, Group<Format>& to) {
    to.set(block, g, which);
  }

  template <class Format, int m>
  static void multiply(const LinearArgs& args, const Group<Format>* panel, const XBlock* x, Stretch stretch,
                       int64_t strip, int64_t row) {
    multiply_tile_256<Format, m>(args, panel, x, stretch, strip, row);
  }
};
