// Descriptions of matrices for Hopper's bulk tensor copies. The driver makes them; it is asked for at run time, so that
// nothing links against it.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

inline EncodeTiled find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  return status == cudaSuccess ? reinterpret_cast<EncodeTiled>(function) : nullptr;
}

// A row-major matrix of 16-bit elements, read in boxes of `box_columns` x `box_rows` with the 128-byte swizzle.
inline bool describe_matrix(CUtensorMap& map, DType type, const void* data, int64_t rows, int64_t columns,
                            int64_t stride, int box_columns, int box_rows) {
  static const EncodeTiled encode = find_encoder();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)},
                   steps[2] = {1, 1};
  const CUtensorMapDataType element =
      type == DType::BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(&map, element, 2, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace millrace
