// Prompts and larger batches: a panel of weights is unpacked to int8 with f32 scales once, stays in the L1 cache, and
// all rows of x pass over it. One micro-kernel serves every format. Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/arm/activations-inl.h"
#include "kernels/linear/arm/epilogue-inl.h"
#include "kernels/linear/arm/tiles-inl.h"
#include "kernels/linear/arm/unpack-inl.h"

constexpr int64_t kPanelStrips = 2;   // of eight rows
constexpr int64_t kPanelGroups = 64;  // of 32 elements: with two strips about 40 KB

template <int scales, bool mins>
struct PanelGroup {
  float scale[scales][kPackedRows];
  float min[mins ? scales : 0][kPackedRows];  // the second one less the first
  int8_t q[8][kPackedRows][4];
};
constexpr size_t kPanelBytes = kPanelStrips * kPanelGroups * sizeof(PanelGroup<2, true>);

template <class Format>
using PanelOf = PanelGroup<Format::kScales, Format::kMins>;

template <class Format>
MR_INLINE inline void unpack_group(const typename Format::Block& block, int g, PanelOf<Format>& to) {
  unrolled<2>([&](auto half) MR_INLINE {
    Weights w;
    Format::weights(block, g, half, w);
    unrolled<8>([&](auto j) MR_INLINE { vst1q_s8(to.q[j][4 * half], w[j]); });
    unrolled<Format::kScales>(
        [&](auto s) MR_INLINE { vst1q_f32(to.scale[s] + 4 * half, scale_of<Format>(block, g, half, s)); });
    if constexpr (Format::kMins) {
      const float32x4_t min = min_of<Format>(block, g, half, 0);
      vst1q_f32(to.min[0] + 4 * half, min);
      if constexpr (Format::kScales == 2)
        vst1q_f32(to.min[1] + 4 * half, vsubq_f32(min_of<Format>(block, g, half, 1), min));
    }
  });
}

// Sixteen elements from `first_quad` on: sums[half][row of x].
template <int m, int first_quad>
MR_INLINE inline void dot_sixteen(const int8_t (&q)[8][kPackedRows][4], const XBlock<4>& x, int32x4_t (&sums)[2][m]) {
  int8x16_t xs[m];
  unrolled<m>([&](auto r) MR_INLINE { xs[r] = vld1q_s8(x.q[r] + 4 * first_quad); });
  unrolled<4>([&](auto lane) MR_INLINE {
    const int8x16_t low = vld1q_s8(q[first_quad + lane][0]), high = vld1q_s8(q[first_quad + lane][4]);
    unrolled<m>([&](auto r) MR_INLINE { Dot::quad<lane>(sums[0][r], low, xs[r]); });
    unrolled<m>([&](auto r) MR_INLINE { Dot::quad<lane>(sums[1][r], high, xs[r]); });
  });
}

template <int m>
MR_INLINE inline void clear(int32x4_t (&sums)[2][m]) {
  unrolled<m>([&](auto r) MR_INLINE {
    sums[0][r] = zero_sum();
    sums[1][r] = zero_sum();
  });
}

template <int m>
MR_INLINE inline void add_scaled(const int32x4_t (&sums)[2][m], const float* scale, const XBlock<4>& x,
                                 float32x4_t (&acc)[2][m]) {
  unrolled<2>([&](auto half) MR_INLINE {
    const float32x4_t w = vld1q_f32(scale + 4 * half);
    unrolled<m>([&](auto r) MR_INLINE {
      acc[half][r] = vfmaq_f32(acc[half][r], vcvtq_f32_s32(sums[half][r]), vmulq_n_f32(w, x.scale[r]));
    });
  });
}

// Eight rows of weights, m rows of x.
template <int m, int scales, bool mins>
MR_INLINE inline void panel_tile(const PanelGroup<scales, mins>* w, int64_t groups, const XBlock<4>* x,
                                 float32x4_t (&acc)[2][m]) {
  unrolled<m>([&](auto r) MR_INLINE { acc[0][r] = acc[1][r] = vdupq_n_f32(0); });
  for (int64_t g = 0; g < groups; ++g, ++w, ++x) {
    int32x4_t sums[2][m];
    clear<m>(sums);
    dot_sixteen<m, 0>(w->q, *x, sums);
    if constexpr (scales == 2) {
      add_scaled<m>(sums, w->scale[0], *x, acc);
      clear<m>(sums);
    }
    dot_sixteen<m, 4>(w->q, *x, sums);
    add_scaled<m>(sums, w->scale[scales - 1], *x, acc);
    unrolled<mins ? scales : 0>([&](auto s) MR_INLINE {
      unrolled<2>([&](auto half) MR_INLINE {
        const float32x4_t min = vld1q_f32(w->min[s] + 4 * half);
        unrolled<m>([&](auto r) MR_INLINE { acc[half][r] = vfmaq_n_f32(acc[half][r], min, x->sum[s][r]); });
      });
    });
  }
}

struct Stretch {  // of k, in groups of 32
  int64_t first, count;
};

template <int scales, bool mins, int m>
__attribute__((noinline)) void multiply_panel_tile(const LinearArgs& args, const PanelGroup<scales, mins>* panel,
                                                   const XBlock<4>* x, Stretch stretch, int64_t strip, int64_t row) {
  float32x4_t acc[2][m];
  panel_tile<m>(panel, stretch.count, x + stretch.first, acc);
  unrolled<m>([&](auto r) MR_INLINE {
    write_four(args, row + r, strip * kPackedRows, acc[0][r], stretch.first == 0);
    write_four(args, row + r, strip * kPackedRows + 4, acc[1][r], stretch.first == 0);
  });
}

template <class Format>
void unpack_panel(const LinearWeights& weights, Stretch stretch, int64_t strip_begin, int64_t strip_end,
                  PanelOf<Format>* panel) {
  const int64_t blocks = weights.k / (32 * Format::kGroups);
  for (int64_t strip = strip_begin; strip < strip_end; ++strip, panel += kPanelGroups) {
    const auto* block = reinterpret_cast<const typename Format::Block*>(weights.data) + strip * blocks +
                        stretch.first / Format::kGroups;
    for (int64_t i = 0; i < stretch.count; ++block) {
      prefetch_after(block);
      for (int g = 0; g < Format::kGroups; ++g, ++i) unpack_group<Format>(*block, g, panel[i]);
    }
  }
}

template <class Format>
void multiply_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const int64_t groups = args.weights->k / 32;
  auto* panel = reinterpret_cast<PanelOf<Format>*>(scratch);
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; strip += kPanelStrips) {
    const int64_t strip_end = std::min(strip + kPanelStrips, piece.strip_end);
    for (Stretch stretch{0, 0}; stretch.first < groups; stretch.first += kPanelGroups) {
      stretch.count = std::min(kPanelGroups, groups - stretch.first);
      unpack_panel<Format>(*args.weights, stretch, strip, strip_end, panel);
      for_tiles<4>(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
        const auto* tile = reinterpret_cast<const XBlock<4>*>(x) + row / 4 * groups;
        for (int64_t s = strip; s < strip_end; ++s) {
          multiply_panel_tile<Format::kScales, Format::kMins, rows>(args, panel + (s - strip) * kPanelGroups, tile,
                                                                    stretch, s, row);
        }
      });
    }
  }
}

size_t panel_x_bytes(int64_t m, int64_t k) { return static_cast<size_t>((m + 3) / 4 * (k / 32)) * sizeof(XBlock<4>); }

void quantize_for_panels(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  const float unit = unit_of(args.weights->format);
  for (int64_t m = m_begin; m < m_end; m += 4) {
    auto* tile = reinterpret_cast<XBlock<4>*>(x) + m / 4 * (args.x.cols / 32);
    quantize_tile(args.x, m, std::min<int64_t>(4, m_end - m), 4, unit, tile);
  }
}

void panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { multiply_panels<decltype(format)>(args, x, scratch, piece); });
}
