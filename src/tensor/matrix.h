// Non-owning views. Activations are row-major matrices: one row per token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// Activations [rows, cols] in a plain dtype, in the memory of the device that computes.
struct Matrix {
  DType dtype = DType::F32;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;  // elements from one row to the next
  std::byte* data = nullptr;

  template <class T>
  T* row(int64_t i) const {
    return reinterpret_cast<T*>(data) + i * stride;
  }
  // The first n rows: buffers are sized for the largest batch and narrowed to the current one.
  Matrix first_rows(int64_t n) const { return {dtype, n, cols, stride, data}; }
  Matrix rows_from(int64_t first, int64_t n) const {
    return {dtype, n, cols, stride, data + static_cast<size_t>(first * stride * info(dtype).bytes)};
  }
  // Columns [begin, begin + n): q, k and v are adjacent in one buffer.
  Matrix columns(int64_t begin, int64_t n) const {
    return {dtype, rows, n, stride, data + static_cast<size_t>(begin) * static_cast<size_t>(info(dtype).bytes)};
  }
};

// A weight matrix [rows, cols] as stored in the file: contiguous rows of blocks.
struct WeightView {
  DType dtype = DType::F32;
  int64_t rows = 0, cols = 0;
  const std::byte* data = nullptr;

  const std::byte* row(int64_t i) const { return data + static_cast<size_t>(i) * row_bytes(dtype, cols); }
  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes(dtype, cols); }
};

}  // namespace millrace
