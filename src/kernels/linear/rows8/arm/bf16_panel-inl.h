// Micro-kernel of panels for BFMMLA, which multiplies two rows of weights with two rows of x, four bf16 elements each:
// 8 rows of weights by up to 10 rows of x. Scales are applied during unpacking, so the inner loop consists of products
// only, and every element of x keeps 8 bits. On machines with BFMMLA this is faster and more accurate than int8.
// Included inside a target region.
#pragma once

#include "kernels/linear/rows8/arm/epilogue-inl.h"
#include "kernels/linear/rows8/arm/unpack-inl.h"
#include "kernels/linear/rows8/panel-inl.h"

using Bf16Vector = uint16x8_t;  // bits only: clang 14 has no bf16 intrinsics without -march

struct Bf16Group {
  uint16_t q[8][4][8];  // [four elements][pair of rows]
};

struct Bf16XBlock {
  static constexpr int kPairs = 5;
  uint16_t q[8][kPairs][2][4];
};

// Inline assembly fixes the instruction order: twenty sums must be in flight.
MR_INLINE inline void bfmmla(float32x4_t& sum, Bf16Vector w, Bf16Vector x) {
  asm volatile("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(w), "w"(x));
}

MR_INLINE inline Bf16Vector to_bf16(float32x4_t low, float32x4_t high) {
  Bf16Vector v;
  asm("bfcvtn %0.4h, %1.4s" : "=w"(v) : "w"(low));
  asm("bfcvtn2 %0.8h, %1.4s" : "+w"(v) : "w"(high));
  return v;
}

template <int pairs>
__attribute__((noinline)) void multiply_bf16_tile(const LinearArgs& args, const Bf16Group* w, const Bf16XBlock* x,
                                                  Stretch stretch, int64_t strip, int64_t row, int64_t rows) {
  float32x4_t acc[4][pairs];
  unrolled<4>([&](auto i) MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { acc[i][j] = vdupq_n_f32(0); }); });
  for (int64_t g = 0; g < stretch.count; ++g, ++w, ++x) {
    unrolled<8>([&](auto step) MR_INLINE {
      Bf16Vector ws[4], xs[pairs];
      unrolled<4>([&](auto i) MR_INLINE { ws[i] = vld1q_u16(w->q[step][i]); });
      unrolled<pairs>([&](auto j) MR_INLINE { xs[j] = vld1q_u16(x->q[step][j][0]); });
      unrolled<4>([&](auto i)
                      MR_INLINE { unrolled<pairs>([&](auto j) MR_INLINE { bfmmla(acc[i][j], ws[i], xs[j]); }); });
    });
  }
  write_pairs<pairs>(args, acc, strip, row, rows, stretch.first == 0);
}

// Elements [k, k + 4) of a row of x, padded with zeros beyond its end.
MR_INLINE inline float32x4_t four_of(const float* row, int64_t k, int64_t cols) {
  if (k + 4 <= cols) return vld1q_f32(row + k);
  float padded[4] = {};
  for (int64_t i = k; i < cols; ++i) padded[i - k] = row[i];
  return vld1q_f32(padded);
}

void convert_x(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  constexpr int kRows = 2 * Bf16XBlock::kPairs;
  const int64_t k = args.x.cols, groups = (k + 31) / 32;
  for (int64_t m = m_begin; m < m_end; m += kRows) {
    auto* tile = reinterpret_cast<Bf16XBlock*>(out) + m / kRows * groups;
    for (int r = 0; r < kRows; ++r) {
      const bool valid = m + r < m_end;
      const float* row = args.x.row<float>(valid ? m + r : m);
      for (int64_t i = 0; i < groups * 8; ++i) {
        const float32x4_t four = valid ? four_of(row, 4 * i, k) : vdupq_n_f32(0);
        vst1_u16(tile[i / 8].q[i % 8][r / 2][r % 2], vget_low_u16(to_bf16(four, four)));
      }
    }
  }
}

struct Bf16Micro {
  template <class Format>
  using Group = Bf16Group;
  using XBlock = Bf16XBlock;
  static constexpr int kRows = 2 * Bf16XBlock::kPairs;
  static constexpr int64_t kJoined = 1, kStrips = 2, kGroups = 32;
  static constexpr size_t kBytes = kStrips * kGroups * sizeof(Bf16Group);

  template <class Format>
  MR_INLINE static void unpack(const typename Format::Block& block, int g, int, Bf16Group& to) {
    unrolled<2>([&](auto half) MR_INLINE {
      Weights w;
      Format::weights(block, g, half, w);
      unrolled<Format::kScales>([&](auto s) MR_INLINE {
        const float32x4_t scale = vmulq_n_f32(scale_of<Format>(block, g, half, s), Format::kUnit);
        float32x4_t min;
        if constexpr (Format::kMins) min = min_of<Format>(block, g, half, s);
        constexpr int kQuads = 8 / Format::kScales;
        unrolled<kQuads>([&](auto j) MR_INLINE {
          const int16x8_t rows01 = vmovl_s8(vget_low_s8(w[s * kQuads + j])), rows23 = vmovl_high_s8(w[s * kQuads + j]);
          const auto row = [&](int16x4_t q, auto lane) MR_INLINE {
            const float32x4_t f = vcvtq_f32_s32(vmovl_s16(q));
            if constexpr (Format::kMins) return vfmaq_laneq_f32(vdupq_laneq_f32(min, lane), f, scale, lane);
            return vmulq_laneq_f32(f, scale, lane);
          };
          const std::integral_constant<int, 0> r0;
          const std::integral_constant<int, 1> r1;
          const std::integral_constant<int, 2> r2;
          const std::integral_constant<int, 3> r3;
          auto& step = to.q[s * kQuads + j];
          vst1q_u16(step[2 * half], to_bf16(row(vget_low_s16(rows01), r0), row(vget_high_s16(rows01), r1)));
          vst1q_u16(step[2 * half + 1], to_bf16(row(vget_low_s16(rows23), r2), row(vget_high_s16(rows23), r3)));
        });
      });
    });
  }

  template <class Format>
  static void unpack_plain(const LinearWeights& weights, int64_t strip, int64_t group, int, Bf16Group& to) {
    const int64_t k = 32 * group, count = std::min<int64_t>(32, weights.k - k);
    for (int r = 0; r < kPackedRows; ++r) {
      const int64_t n = strip * kPackedRows + r;
      uint16_t padded[32] = {};
      const uint16_t* row = padded;
      if (n < weights.n) {
        row = reinterpret_cast<const uint16_t*>(weights.data) + n * weights.k + k;
        if (count < 32) row = static_cast<const uint16_t*>(std::memcpy(padded, row, static_cast<size_t>(count) * 2));
      }
      for (int step = 0; step < 8; ++step) {
        vst1_u16(to.q[step][r / 2] + r % 2 * 4, vld1_u16(row + 4 * step));
      }
    }
  }

  template <class Format, int m>
  static void multiply(const LinearArgs& args, const Bf16Group* panel, const Bf16XBlock* x, Stretch stretch,
                       int64_t strip, int64_t row) {
    multiply_bf16_tile<(m + 1) / 2>(args, panel, x, stretch, strip, row, m);
  }
};
