// Number formats of KV caches: the plain ones, Q8_0 and FP8.
#pragma once

#include "tensor/dtype.h"

namespace millrace {

// Plain E4M3 numbers without scales, up to 448. It follows the enumerators of DType and is none of them: no weight has
// this format, and kernels of linear layers switch over the formats of weights.
inline constexpr DType kFp8{17};
inline constexpr float kLargestFp8 = 448;

std::optional<DType> kv_dtype_from_name(std::string_view name);  // in any case
inline constexpr std::string_view kKvDtypeNames = "f32, f16, bf16, q8_0, fp8";

// The nearest E4M3 number, ties to even; magnitudes beyond 448 become 448, NaN becomes 0.
uint8_t f32_to_e4m3(float v);

}  // namespace millrace
