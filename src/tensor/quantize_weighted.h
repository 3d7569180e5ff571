// f32 rows to the number formats of `millrace quantize`, with the columns' importance.
#pragma once

#include "tensor/quantize.h"

namespace millrace {

// As quantize_row. `importance` has a positive number for each of the n columns: the mean square of the activations
// that it multiplies; null: none is known. Formats with a scale search minimise the error of the products instead of
// that of the weights; Q8_0, MXFP4 and FP8 ignore it.
void quantize_row(DType dtype, const float* src, std::byte* dst, int64_t n, const float* importance);

}  // namespace millrace
