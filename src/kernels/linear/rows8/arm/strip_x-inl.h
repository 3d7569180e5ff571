// Quantizes x to int8 for strips: tiles of up to four rows, one scale per 32 elements, or 256 for K-blocks. Included
// inside a target region, after the formats.
#pragma once

#include "kernels/linear/rows8/arm/packed_x-inl.h"

template <int m>
struct SmallX {
  float scale[m], sum[m];
  float unused[m][2];   // padding, so that no load crosses a cache line
  int32_t first[m][4];  // bits of a float: kIntegerShift
  int8_t q[m][32];
};

template <int m>
struct SuperX {
  float scale[m];
  float unused[m][3];
  struct Group {
    int32_t first[m][4];
    int16_t sum[2][m][8];  // of all 32 elements, and of the last 16
    int8_t q[m][32];
  } groups[8];
};

template <class Format, int m>
using StripX = std::conditional_t<Format::kGroups == 1, SmallX<m>, SuperX<m>>;

template <class Format, int m>
MR_INLINE inline void set_row(SmallX<m>& to, int r, const float* x) {
  const Steps steps = steps_for<Format>(largest_of(x, 32));
  const Rounded32 v = round_32<Format::kNibbles>(x, steps.inverse);
  to.scale[r] = steps.step * kPackedUnit<Format>;
  to.sum[r] = steps.step * sum_of<Format>(v);
  const int32x4_t shift = vreinterpretq_s32_f32(vdupq_n_f32(kIntegerShift));
  vst1q_s32(to.first[r], vaddq_s32(shift, vdupq_n_s32(first_sum<Format>(v))));
  for (int half = 0; half < 2; ++half) vst1q_s8(to.q[r] + 16 * half, v.q[half]);
}

template <class Format, int m>
MR_INLINE inline void set_row(SuperX<m>& to, int r, const float* x) {
  const Steps steps = steps_for<Format>(largest_of(x, 256));
  to.scale[r] = steps.step * kPackedUnit<Format>;
  for (int g = 0; g < 8; ++g) {
    const Rounded32 v = round_32<Format::kNibbles>(x + 32 * g, steps.inverse);
    auto& group = to.groups[g];
    vst1q_s32(group.first[r], vdupq_n_s32(first_sum<Format>(v)));
    vst1q_s16(group.sum[0][r], vdupq_n_s16(static_cast<int16_t>(std::lrintf(sum_of<Format>(v)))));
    vst1q_s16(group.sum[1][r], vdupq_n_s16(static_cast<int16_t>(v.total[1])));
    for (int half = 0; half < 2; ++half) vst1q_s8(group.q[r] + 16 * half, v.q[half]);
  }
}

// Tiles of x are contiguous, four rows each; the last one holds the rest. The offset of a tile thus follows from its
// first row.
template <class Format, int m, class Byte>
MR_INLINE inline auto* x_tile(Byte* x, int64_t first_row, int64_t k) {
  static_assert(sizeof(StripX<Format, m>) == m * sizeof(StripX<Format, 1>));
  using Tile = std::conditional_t<std::is_const_v<Byte>, const StripX<Format, m>, StripX<Format, m>>;
  const int64_t blocks = first_row * (k / (32 * Format::kGroups));
  return reinterpret_cast<Tile*>(x + static_cast<size_t>(blocks) * sizeof(StripX<Format, 1>));
}

size_t strip_x_bytes(int64_t m, int64_t k) {
  return static_cast<size_t>(m * (k / 32)) * std::max(sizeof(SmallX<1>), sizeof(SuperX<1>) / 8);
}

template <class Format>
void quantize_strips_for(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  constexpr int kElements = 32 * Format::kGroups;
  for_tiles<4>(m_begin, m_end, [&](int64_t row, auto rows) {
    auto* tile = x_tile<Format, rows>(x, row, args.x.cols);
    for (int r = 0; r < rows; ++r) {
      const float* from = args.x.row<float>(row + r);
      for (int64_t b = 0; b < args.x.cols / kElements; ++b) set_row<Format, rows>(tile[b], r, from + kElements * b);
    }
  });
}

void quantize_for_strips(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  with_format(args.weights->format,
              [&](auto format) { quantize_strips_for<decltype(format)>(args, m_begin, m_end, x); });
}
