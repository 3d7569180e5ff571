// Matrix products of bf16 with sums in f32 (AMX), for the blocked attention of prefill (many_pairs-inl.h).
//
// One instruction multiplies 16 rows of A by 16 rows of B over 32 elements. A is packed row after row, `width` numbers
// each; B in blocks of 16 rows, of each block two elements of all rows, then the next two: [row / 16][element /
// 2][16][2].
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// Holds the tile registers while it lives.
class TileProducts {
 public:
  static constexpr int kVectors = 16, kPositions = 32;
  static constexpr int kTile = 128, kTogether = 32;

  TileProducts();
  ~TileProducts();
  TileProducts(const TileProducts&) = delete;

  // All numbers of columns and of rows to transpose are multiples of 32, other numbers of rows of 16.
  static void pack_left(const float* a, int64_t stride, int64_t rows, int64_t cols, uint16_t* out, int64_t width);
  static void pack_right(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                         int64_t width);
  static void pack_right_columns(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                                 int64_t width);
  static void multiply(const uint16_t* left, const uint16_t* right, int64_t width, int64_t rows, int64_t cols,
                       int64_t depth, float* c, int64_t c_stride, bool accumulate);
};

}  // namespace millrace
