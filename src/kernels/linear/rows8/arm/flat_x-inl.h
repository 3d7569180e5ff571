// Quantizes x to int8 for small batches, eight rows interleaved. Included inside a target region, after the formats.
#pragma once

#include "kernels/linear/rows8/arm/packed_x-inl.h"

// The order of eight rows of x in vectors of four sums, and of their elements.
struct PairsOfX {  // [x0, x1, x0, x1] of a pair
  static constexpr int kVectors = 4, kRows = 2;
  static constexpr int kStoredLow = 0;  // zero point of low nibbles as they are multiplied
  using Elements = int8_t[4][4][2][8];

  template <class Value>
  MR_INLINE static void put(Value (&to)[4][4], int row, Value value) {
    to[row / 2][row % 2] = to[row / 2][row % 2 + 2] = value;
  }
  MR_INLINE static void put(Elements& to, int row, const int8x16_t (&q)[2]) {
    for (int i = 0; i < 2; ++i) {
      vst1_s8(to[2 * i][row / 2][row % 2], vget_low_s8(q[i]));
      vst1_s8(to[2 * i + 1][row / 2][row % 2], vget_high_s8(q[i]));
    }
  }
};

struct RowsOfX {  // one row in all four lanes
  static constexpr int kVectors = 8, kRows = 1;
  static constexpr int kStoredLow = 8;
  using Elements = int8_t[2][8][16];

  template <class Value>
  MR_INLINE static void put(Value (&to)[8][4], int row, Value value) {
    for (auto& lane : to[row]) lane = value;
  }
  MR_INLINE static void put(Elements& to, int row, const int8x16_t (&q)[2]) {
    for (int i = 0; i < 2; ++i) vst1q_s8(to[i][row], q[i]);
  }
};

// The elements of eight rows that share one step per row: a K-block, or 128 elements.
template <class Format, class Order>
struct FlatX {
  static constexpr bool kWhole = Format::kGroups > 1;
  static constexpr int kGroups = kWhole ? Format::kGroups : 4;
  using Sum = std::conditional_t<kWhole, int32_t, float>;

  float step[Order::kVectors][4];
  struct Group {
    int32_t first[Order::kVectors][4];  // initial sums; for small blocks the bits of a float, kIntegerShift
    Sum sum[2][Order::kVectors][4];     // of all 32 elements, and of the last 16
    typename Order::Elements q;
  } groups[kGroups];

  MR_INLINE void put(int row, const float* x, int64_t count) {
    const Steps steps = steps_for<Format>(largest_of(x, 32 * count));
    Order::put(step, row, steps.step * kPackedUnit<Format>);
    for (int64_t g = 0; g < count; ++g) {
      const Rounded32 v = round_32<Format::kNibbles>(x + 32 * g, steps.inverse);
      Group& to = groups[g];
      const int low = Format::kNibbles ? 16 * Order::kStoredLow * v.total[0] : 0;
      Order::put(to.first, row, first_sum<Format>(v) + low + (kWhole ? 0 : std::bit_cast<int32_t>(kIntegerShift)));
      Order::put(to.sum[0], row, static_cast<Sum>(sum_of<Format>(v) / kPackedUnit<Format>));
      Order::put(to.sum[1], row, static_cast<Sum>(static_cast<float>(v.total[1]) / kPackedUnit<Format>));
      Order::put(to.q, row, v.q);
    }
  }
  static int64_t blocks(int64_t k) { return (k / 32 + kGroups - 1) / kGroups; }
};

template <class Order>
size_t flat_x_bytes(int64_t m, int64_t k) {
  const auto bytes_for = [&](auto format) {
    using X = FlatX<decltype(format), Order>;
    return static_cast<size_t>((m + 7) / 8 * X::blocks(k)) * sizeof(X);
  };
  return std::max(bytes_for(UnpackQ4_0()), bytes_for(UnpackQ4_K()));  // every other format has the size of one of these
}

template <class Order>
void quantize_for_flat(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  with_format(args.weights->format, [&](auto format) {
    using X = FlatX<decltype(format), Order>;
    const int64_t groups = args.x.cols / 32, blocks = X::blocks(args.x.cols);
    const int64_t end = (m_end + Order::kRows - 1) / Order::kRows * Order::kRows;
    for (int64_t m = m_begin; m < end; ++m) {
      auto* tile = reinterpret_cast<X*>(out) + m / 8 * blocks;
      // Missing rows repeat the last one; their results are not written.
      const float* x = args.x.row<float>(std::min(m, m_end - 1));
      for (int64_t g = 0; g < groups; g += X::kGroups, ++tile) {
        tile->put(static_cast<int>(m % 8), x + 32 * g, std::min<int64_t>(X::kGroups, groups - g));
      }
    }
  });
}
