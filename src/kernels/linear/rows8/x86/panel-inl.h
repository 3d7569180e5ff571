// Code that the micro-kernels of panels share. Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/rows8/x86/epilogue-inl.h"
#include "kernels/linear/rows8/x86/group-inl.h"
// Must follow the formats:
#include "kernels/linear/rows8/panel-inl.h"

// 8 * joined rows of unpacked weights.
template <class Format, int joined>
struct DotGroup {
  static constexpr int kRows = 8 * joined;
  float scale[Format::kScales][kRows];
  float min[Format::kMins ? Format::kScales : 0][kRows];  // [1] holds the second minus the first
  int8_t q[8][kRows][4];

  MR_INLINE void set(const typename Format::Block& block, int g, int which) {
    const int row = which * kPackedRows;
    unrolled<4>([&](auto j) MR_INLINE {
      const QuadPair w = ready_quads<Format, j>(block, g);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q[j][row]), w.low);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q[j + 4][row]), w.high);
    });
    const Scales<Format> scales(block);
    unrolled<Format::kScales>([&](auto s) MR_INLINE { _mm256_storeu_ps(scale[s] + row, scales.scale(g, s)); });
    unrolled<Format::kMins ? Format::kScales : 0>(
        [&](auto s) MR_INLINE { _mm256_storeu_ps(min[s] + row, min_step<Format>(scales, g, s)); });
  }
};

// Size of the largest format's group.
template <int joined>
constexpr size_t kLargestGroup = sizeof(DotGroup<UnpackQ2_K, joined>);

template <class Micro>
void quantize_for_panels(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  const ZeroPoint zero = zero_point_of(args.weights->format);
  for (int64_t m = m_begin; m < m_end; m += Micro::kRows) {
    auto* tile = reinterpret_cast<typename Micro::XBlock*>(x) + m / Micro::kRows * (args.x.cols / 32);
    quantize_tile(args.x, m, std::min<int64_t>(Micro::kRows, m_end - m), Micro::kRows, zero, tile);
  }
}
