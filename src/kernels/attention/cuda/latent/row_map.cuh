// Latent rows of a layer as a matrix for bulk copies, and pieces of queries in shared memory.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "hardware/cuda/driver_function.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cuda/mma.cuh"
#include "kernels/cuda/vectors.cuh"

namespace millrace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
// Null if the driver has no bulk copies.
inline EncodeTiled tensor_map_encoder() {
  static const auto found = reinterpret_cast<EncodeTiled>(driver_function("cuTensorMapEncodeTiled", 12000));
  return found;
}

// All latent rows of a layer as one matrix, copied in boxes of 64 columns. The number of pages is not needed.
inline bool describe_latent_rows(const KvLayer& kv, int box_rows, CUtensorMap& map) {
  const auto columns = static_cast<cuuint64_t>(kv.key_dim);
  const cuuint64_t sizes[2] = {columns, 0x7fffffff}, strides[1] = {columns * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  const auto type = kv.dtype == DType::F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return tensor_map_encoder()(&map, type, 2, kv.keys, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                              CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

constexpr int kOutsideRows = 0x7fffffff;  // a row beyond the end of the matrix: its box reads as zeros

// Rows of the largest box that never crosses a page of `block_size` rows, a multiple of 16.
inline int latent_box_rows(int block_size) { return block_size % 64 == 0 ? 64 : block_size % 32 == 0 ? 32 : 16; }

// Copies eight elements of a query to shared memory, converted to the type of the latent rows.
template <class T, class Source>
__device__ void bring_piece(uint32_t to, const Source* from) {
  if constexpr (std::is_same_v<T, Source>) {
    copy_async(to, from);
  } else {
    const Eight x = widen(from);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pack<T>(x.at[0], x.at[1])),
                 "r"(pack<T>(x.at[2], x.at[3])), "r"(pack<T>(x.at[4], x.at[5])), "r"(pack<T>(x.at[6], x.at[7]))
                 : "memory");
  }
}

}  // namespace millrace
