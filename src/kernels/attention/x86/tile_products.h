// Matrix products of bf16 with f32 sums (AMX), for the blocked attention of prefill (many_pairs-inl.h).
//
// One instruction multiplies 16 rows of A by 16 rows of B over 32 elements. A is packed row by row, `width` numbers
// each. B is packed in blocks of 16 rows: two elements of all 16 rows, then the next two: [row / 16][element /
// 2][16][2].
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// Configures the tile registers during its lifetime.
class TileProducts {
 public:
  static constexpr int kVectors = 16, kPositions = 32;
  static constexpr int kTile = 128, kTogether = 32;

  TileProducts();
  ~TileProducts();
  TileProducts(const TileProducts&) = delete;

  // Columns, and rows to transpose, are multiples of 32; other rows are multiples of 16.
  static void pack_left(const float* a, int64_t stride, int64_t rows, int64_t cols, uint16_t* out, int64_t width);
  static void pack_right(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                         int64_t width);
  static void pack_right_columns(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                                 int64_t width);
  static void multiply(const uint16_t* left, const uint16_t* right, int64_t width, int64_t rows, int64_t cols,
                       int64_t depth, float* c, int64_t c_stride, bool accumulate);
};

}  // namespace millrace
