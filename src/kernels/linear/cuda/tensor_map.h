// Descriptors of 16-bit matrices for Hopper's tensor copies (TMA).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "hardware/cuda/driver_function.h"
#include "tensor/dtype.h"

namespace millrace {

struct TensorBox {
  int columns, rows;
  bool swizzled;  // 128-byte swizzle, as warpgroup products expect it; otherwise plain rows
};

// Describes a row-major matrix that is read in boxes; elements outside it read as zeros.
inline bool describe(CUtensorMap& map, DType type, const void* data, int64_t rows, int64_t columns, int64_t stride,
                     const TensorBox& box) {
  using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = reinterpret_cast<EncodeTiled>(driver_function("cuTensorMapEncodeTiled", 12000));
  if (encode == nullptr) return false;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t extent[2] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUtensorMapDataType element =
      type == DType::BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(&map, element, 2, const_cast<void*>(data), sizes, strides, extent, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                box.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace millrace
