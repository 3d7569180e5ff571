// Matrix products of bf16 with f32 sums (BFMMLA), for the blocked attention of prefill (many_pairs-inl.h).
//
// One instruction multiplies two rows of A by two rows of B over four elements. A matrix is therefore packed as pairs
// of rows, four elements of one row, then four of the other: [row / 2][element / 4][2][4], with 2 `width` numbers per
// pair.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

struct PairProducts {
  static constexpr int kVectors = 8, kPositions = 8;
  static constexpr int kTile = 64, kTogether = 128;

  // `rows` is even, `cols` a multiple of eight.
  static void pack_left(const float* a, int64_t stride, int64_t rows, int64_t cols, uint16_t* out, int64_t width);
  static void pack_right(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                         int64_t width);
  // Packs pairs of columns, four rows at a time: `count` is a multiple of four, `cols` of eight.
  static void pack_right_columns(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                                 int64_t width);
  // rows and cols are multiples of eight, depth of four.
  static void multiply(const uint16_t* left, const uint16_t* right, int64_t width, int64_t rows, int64_t cols,
                       int64_t depth, float* c, int64_t c_stride, bool accumulate);
};

}  // namespace millrace
