// Non-owning views. Activations are row-major matrices: one row per token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// Activations [rows, cols] in a plain dtype, wherever the device keeps them.
struct Matrix {
  DType dtype = DType::F32;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;  // elements from one row to the next
  std::byte* data = nullptr;

  template <class T>
  T* row(int64_t i) const {
    return reinterpret_cast<T*>(data) + i * stride;
  }
  // The first n rows: buffers are built for the largest batch and narrowed to the one at hand.
  Matrix first_rows(int64_t n) const { return {dtype, n, cols, stride, data}; }
  Matrix rows_from(int64_t first, int64_t n) const {
    return {dtype, n, cols, stride, data + static_cast<size_t>(first * stride * info(dtype).bytes)};
  }
  // Columns [begin, begin + n): q, k and v live side by side in one buffer.
  Matrix columns(int64_t begin, int64_t n) const {
    return {dtype, rows, n, stride, data + static_cast<size_t>(begin) * static_cast<size_t>(info(dtype).bytes)};
  }
};

// A weight matrix [rows, cols] as a file holds it: rows of blocks, contiguous.
struct WeightView {
  DType dtype = DType::F32;
  int64_t rows = 0, cols = 0;
  const std::byte* data = nullptr;

  const std::byte* row(int64_t i) const { return data + static_cast<size_t>(i) * row_bytes(dtype, cols); }
  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes(dtype, cols); }
};

}  // namespace millrace
