// Rows of x as int8 for small batches with SMMLA: eight rows side by side. Included inside a target region, after the
// formats.
#pragma once

#include "kernels/linear/arm/packed_x-inl.h"

constexpr int kFlatPairs = 4;  // of rows that lie together

// What has one step in each row: a block of weights with integer scales, or 128 elements.
template <class Format>
struct FlatX {
  static constexpr bool kWhole = Format::kGroups > 1;
  static constexpr int kGroups = kWhole ? Format::kGroups : 4;

  float step[kFlatPairs][4];  // as [x0, x1, x0, x1] of a pair, the order that sums come in
  struct Group {
    int32_t first[kFlatPairs][4];  // what sums start from; of small blocks as a float: kIntegerShift
    std::conditional_t<kWhole, int32_t, float> sum[2][kFlatPairs][4];  // of all 32, and of the second 16 alone
    int8_t q[4][kFlatPairs][2][8];
  } groups[kGroups];

  MR_INLINE void put(int row, const float* x, int64_t count) {
    const Steps steps = steps_for<Format>(largest_of(x, 32 * count));
    const auto both = [&](auto(&to)[kFlatPairs][4], auto value)
                          MR_INLINE { to[row / 2][row % 2] = to[row / 2][row % 2 + 2] = value; };
    both(step, steps.step * kPackedUnit<Format>);
    for (int64_t g = 0; g < count; ++g) {
      const Rounded32 v = round_32<Format::kNibbles>(x + 32 * g, steps.inverse);
      Group& to = groups[g];
      both(to.first, first_sum<Format>(v) + (kWhole ? 0 : std::bit_cast<int32_t>(kIntegerShift)));
      using Sum = std::remove_reference_t<decltype(to.sum[0][0][0])>;
      both(to.sum[0], static_cast<Sum>(sum_of<Format>(v) / kPackedUnit<Format>));
      both(to.sum[1], static_cast<Sum>(static_cast<float>(v.total[1]) / kPackedUnit<Format>));
      for (int i = 0; i < 2; ++i) {
        vst1_s8(to.q[2 * i][row / 2][row % 2], vget_low_s8(v.q[i]));
        vst1_s8(to.q[2 * i + 1][row / 2][row % 2], vget_high_s8(v.q[i]));
      }
    }
  }
};

template <class Format>
inline int64_t flat_x_blocks(int64_t k) {
  return (k / 32 + FlatX<Format>::kGroups - 1) / FlatX<Format>::kGroups;
}

size_t flat_x_bytes(int64_t m, int64_t k) {
  const auto bytes_for = [&](auto format) {
    using Format = decltype(format);
    return static_cast<size_t>((m + 7) / 8 * flat_x_blocks<Format>(k)) * sizeof(FlatX<Format>);
  };
  return std::max(bytes_for(UnpackQ4_0()), bytes_for(UnpackQ4_K()));  // all others are like one of them
}

void quantize_for_flat(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  with_format(args.weights->format, [&](auto format) {
    using X = FlatX<decltype(format)>;
    const int64_t groups = args.x.cols / 32, blocks = flat_x_blocks<decltype(format)>(args.x.cols);
    for (int64_t m = m_begin; m < (m_end + 1) / 2 * 2; ++m) {
      auto* tile = reinterpret_cast<X*>(out) + m / 8 * blocks;
      // A row that does not exist repeats the one before; what comes of it is not written.
      const float* x = args.x.row<float>(std::min(m, m_end - 1));
      for (int64_t g = 0; g < groups; g += X::kGroups, ++tile) {
        tile->put(static_cast<int>(m % 8), x + 32 * g, std::min<int64_t>(X::kGroups, groups - g));
      }
    }
  });
}
