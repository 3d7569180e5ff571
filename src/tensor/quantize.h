// f32 rows to the number formats that `millrace quantize` and the tests write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// n is a multiple of the dtype's block; dst needs the alignment of the dtype's elements. Supports every dtype. An
// infinity or a NaN makes its whole block useless.
void quantize_row(DType dtype, const float* src, std::byte* dst, int64_t n);

}  // namespace millrace
