// Rows of any number format as f32: the scalar reference that every kernel is tested against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// n is a multiple of the dtype's block; src needs the alignment of the dtype's elements (4 for F32, else 2).
void dequantize_row(DType dtype, const std::byte* src, float* dst, int64_t n);

}  // namespace millrace
