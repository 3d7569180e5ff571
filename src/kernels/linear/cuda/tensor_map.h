// Descriptors of 16-bit matrices for Hopper's tensor copies (TMA).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "hardware/cuda/driver_function.h"
#include "tensor/dtype.h"

namespace millrace {

struct TensorBox {
  int columns, rows;
  bool swizzled;     // 128-byte swizzle, as warpgroup products expect it; otherwise plain rows
  int matrices = 1;  // of a stack
};

// Row-major matrices of one shape, `apart` bytes from one to the next; rows are `stride` elements apart.
struct MatrixStack {
  const void* data;
  int64_t count, rows, columns, stride;
  size_t apart;
};

// Describes a stack of matrices that is read in boxes; elements outside it read as zeros.
inline bool describe(CUtensorMap& map, DType type, const MatrixStack& stack, const TensorBox& box) {
  using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = reinterpret_cast<EncodeTiled>(driver_function("cuTensorMapEncodeTiled", 12000));
  if (encode == nullptr) return false;
  const cuuint32_t dimensions = stack.apart > 0 ? 3 : 2;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(stack.columns), static_cast<cuuint64_t>(stack.rows),
                               static_cast<cuuint64_t>(stack.count)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(stack.stride) * 2, stack.apart};
  const cuuint32_t extent[3] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows),
                                static_cast<cuuint32_t>(box.matrices)};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUtensorMapDataType element =
      type == DType::BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(&map, element, dimensions, const_cast<void*>(stack.data), sizes, strides, extent, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, box.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The same of a single matrix.
inline bool describe(CUtensorMap& map, DType type, const void* data, int64_t rows, int64_t columns, int64_t stride,
                     const TensorBox& box) {
  return describe(map, type, MatrixStack{data, 1, rows, columns, stride, 0}, box);
}

}  // namespace millrace
