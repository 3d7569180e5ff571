// Small batches with SMMLA: packed weights from memory through registers, up to eight rows of x at a time, a scale for
// every 32 elements. Included inside a target region, after the micro-kernel of panels.
#pragma once

#include "kernels/linear/rows8/streams-inl.h"

struct FlatX {  // 32 elements of eight rows; pairs of rows as [x0, x1, x0, x1], as sums come
  float step[4][4];
  float sum[2][4][4];  // all 32, and the second 16 alone
  int8_t q[4][4][2][8];

  MR_INLINE void put(int row, const float* x, float unit) {
    const float largest = largest_of(x, 32);
    const Rounded32 v = round_32<false>(x, largest > 0 ? 127 / largest : 0.0f);
    const float one = largest * (1 / 127.0f);
    const auto both = [&](float(&to)[4], float value) MR_INLINE { to[row % 2] = to[row % 2 + 2] = value; };
    both(step[row / 2], one * unit);
    both(sum[0][row / 2], one * static_cast<float>(v.total[0] + v.total[1]));
    both(sum[1][row / 2], one * static_cast<float>(v.total[1]));
    for (int i = 0; i < 2; ++i) {
      vst1_s8(q[2 * i][row / 2][row % 2], vget_low_s8(v.q[i]));
      vst1_s8(q[2 * i + 1][row / 2][row % 2], vget_high_s8(v.q[i]));
    }
  }
};

size_t flat_x_bytes(int64_t m, int64_t k) {
  return static_cast<size_t>((m + kPanelRows - 1) / kPanelRows * (k / 32)) * sizeof(FlatX);
}

void quantize_for_flat(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  float unit = 1;
  with_format(args.weights->format, [&](auto format) { unit = decltype(format)::kUnit; });
  const int64_t groups = args.x.cols / 32;
  for (int64_t m = m_begin; m < m_end; m += kPanelRows) {
    auto* tile = reinterpret_cast<FlatX*>(out) + m / kPanelRows * groups;
    for (int64_t g = 0; g < groups; ++g) {
      // Rows that do not exist repeat the last one; what comes of them is not written.
      for (int r = 0; r < kPanelRows; ++r) {
        tile[g].put(r, args.x.row<float>(std::min(m + r, m_end - 1)) + 32 * g, unit);
      }
    }
  }
}

// Eight rows of weights of one group in the order of SMMLA.
template <class Format>
struct FlatGroup {
  int8_t q[4][4][16];  // [eight elements][pair of rows]
  float scale[Format::kScales][4][4], min[Format::kScales][4][4];

  MR_INLINE FlatGroup(const typename Format::Block& block, int g) {
    unrolled<2>([&](auto half) MR_INLINE {
      Weights w;
      Format::weights(block, g, half, w);
      unrolled<4>([&](auto i) MR_INLINE {
        const int32x4_t low = vreinterpretq_s32_s8(w[2 * i]), high = vreinterpretq_s32_s8(w[2 * i + 1]);
        vst1q_s8(q[i][2 * half], vreinterpretq_s8_s32(vzip1q_s32(low, high)));
        vst1q_s8(q[i][2 * half + 1], vreinterpretq_s8_s32(vzip2q_s32(low, high)));
      });
      const auto pairs = [&](float32x4_t v, float(&to)[4][4]) MR_INLINE {
        vst1q_f32(to[2 * half], vzip1q_f32(v, v));
        vst1q_f32(to[2 * half + 1], vzip2q_f32(v, v));
      };
      unrolled<Format::kScales>([&](auto s) MR_INLINE {
        pairs(scale_of<Format>(block, g, half, s), scale[s]);
        if constexpr (Format::kMins) {
          const float32x4_t own = min_of<Format>(block, g, half, s);
          pairs(s == 0 ? own : vsubq_f32(own, min_of<Format>(block, g, half, 0)), min[s]);  // beyond the first one
        }
      });
    });
  }
};

// Pairs [first, first + count) of rows of x: as many as leave room for all sums in registers.
template <class Format, int first, int count, int pairs>
MR_INLINE inline void add_pairs(const FlatGroup<Format>& w, const FlatX& x, float32x4_t (&acc)[4][pairs]) {
  constexpr int kSteps = 4 / Format::kScales;
  const auto each = [](auto visit) MR_INLINE {
    unrolled<4>([&](auto i) MR_INLINE { unrolled<count>([&](auto j) MR_INLINE { visit(i, j); }); });
  };
  unrolled<Format::kScales>([&](auto s) MR_INLINE {
    int32x4_t sums[4][count];
    each([&](auto i, auto j) MR_INLINE { sums[i][j] = shifted_zero(); });
    unrolled<kSteps>([&](auto step) MR_INLINE {
      int8x16_t xs[count];
      unrolled<count>([&](auto j) MR_INLINE { xs[j] = vld1q_s8(x.q[s * kSteps + step][first + j][0]); });
      unrolled<4>([&](auto i) MR_INLINE {
        const int8x16_t ws = vld1q_s8(w.q[s * kSteps + step][i]);
        unrolled<count>([&](auto j) MR_INLINE { smmla(sums[i][j], ws, xs[j]); });
      });
    });
    each([&](auto i, auto j) MR_INLINE {
      float32x4_t& sum = acc[i][first + j];
      const float32x4_t step = vmulq_f32(vld1q_f32(w.scale[s][i]), vld1q_f32(x.step[first + j]));
      sum = vfmaq_f32(sum, unshifted(sums[i][j]), step);
      if constexpr (Format::kMins) sum = vfmaq_f32(sum, vld1q_f32(w.min[s][i]), vld1q_f32(x.sum[s][first + j]));
    });
  });
}

template <class Format, int pairs>
__attribute__((noinline)) void multiply_flat(const LinearArgs& args, const FlatX* x, int64_t strip, int64_t row,
                                             int64_t rows) {
  float32x4_t acc[4][pairs];
  unrolled<4>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { acc[i][j] = vdupq_n_f32(0); }); });
  for (StripStreams<Format, 1> strips(*args.weights, strip); strips.more(); strips.next()) {
    for (int g = 0; g < Format::kGroups; ++g, ++x) {
      strips.prefetch(g);
      const FlatGroup<Format> w(strips.block(0), g);
      add_pairs<Format, 0, std::min(pairs, 2)>(w, *x, acc);
      if constexpr (pairs > 2) add_pairs<Format, 2, pairs - 2>(w, *x, acc);
    }
  }
  write_pairs<pairs>(args, acc, strip, row, rows, true);
}

// Strips go outermost: with several tiles of x each strip is read from memory for the first of them only.
void flat_strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  const int64_t groups = args.weights->k / 32;
  with_format(args.weights->format, [&](auto format) {
    for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
      for_tiles<4>(0, (piece.m_end - piece.m_begin + 1) / 2, [&](int64_t pair, auto pairs) {
        const int64_t row = piece.m_begin + 2 * pair;
        const auto* tile = reinterpret_cast<const FlatX*>(x) + row / kPanelRows * groups;
        multiply_flat<decltype(format), pairs>(args, tile, strip, row, std::min<int64_t>(2 * pairs, piece.m_end - row));
      });
    }
  });
}
