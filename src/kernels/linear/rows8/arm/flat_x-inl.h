// Rows of x as int8 for small batches: eight rows side by side. Included inside a target region, after the
// formats.
#pragma once

#include "kernels/linear/rows8/arm/packed_x-inl.h"

// Where things of eight rows lie, in the order that an instruction's sums come in: vectors of four, and elements.
struct PairsOfX {  // [x0, x1, x0, x1] of a pair
  static constexpr int kVectors = 4, kRows = 2;
  static constexpr int kStoredLow = 0;  // the zero point of low nibbles as they are multiplied
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

struct RowsOfX {  // four times the same
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

// What has one step in each row: a block of weights with integer scales, or 128 elements.
template <class Format, class Order>
struct FlatX {
  static constexpr bool kWhole = Format::kGroups > 1;
  static constexpr int kGroups = kWhole ? Format::kGroups : 4;
  using Sum = std::conditional_t<kWhole, int32_t, float>;

  float step[Order::kVectors][4];
  struct Group {
    int32_t first[Order::kVectors][4];  // what sums start from; of small blocks as a float: kIntegerShift
    Sum sum[2][Order::kVectors][4];     // of all 32, and of the second 16 alone
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
  return std::max(bytes_for(UnpackQ4_0()), bytes_for(UnpackQ4_K()));  // all others are like one of them
}

template <class Order>
void quantize_for_flat(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  with_format(args.weights->format, [&](auto format) {
    using X = FlatX<decltype(format), Order>;
    const int64_t groups = args.x.cols / 32, blocks = X::blocks(args.x.cols);
    const int64_t end = (m_end + Order::kRows - 1) / Order::kRows * Order::kRows;
    for (int64_t m = m_begin; m < end; ++m) {
      auto* tile = reinterpret_cast<X*>(out) + m / 8 * blocks;
      // A row that does not exist repeats the one before; what comes of it is not written.
      const float* x = args.x.row<float>(std::min(m, m_end - 1));
      for (int64_t g = 0; g < groups; g += X::kGroups, ++tile) {
        tile->put(static_cast<int>(m % 8), x + 32 * g, std::min<int64_t>(X::kGroups, groups - g));
      }
    }
  });
}
