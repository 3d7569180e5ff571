// Rotary embedding of q and k together with the write of k and v into their pages, on a CUDA device; and the angles.
#pragma once

#include "kernels/attention/cuda/launch.h"
#include "kernels/rope/style.h"

namespace millrace {

struct CudaRopeWriteArgs {
  RopeStyle style = RopeStyle::Halves;
  CudaMatrix q;                   // [rows, heads * head_dim], turned in place
  CudaMatrix k, v;                // [rows, kv_heads * head_dim]; k is turned on its way to its page
  const float* angles = nullptr;  // [rows, rotary_dim]: rotary_dim / 2 cosines, then as many sines; null: nothing turns
  int rotary_dim = 0;
  const float* q_norm = nullptr;  // [head_dim]: RMS norm of each head before it turns; null: none
  const float* k_norm = nullptr;
  float epsilon = 1e-6f;
  DType kv = DType::BF16;  // F32, F16, BF16 or Q8_0
  void* keys = nullptr;  // [page][kv head][slot][head_dim]: one layer; null: k is turned in place and nothing is stored
  void* values = nullptr;
  int heads = 0, kv_heads = 0, head_dim = 0, block_size = 64;
  const int32_t* row_slots = nullptr;  // [rows]: page * block_size + slot of each row's token; negative: not stored
  int rows = 0;
};
CudaError launch_cuda_rope_write(const CudaRopeWriteArgs& args, const CudaLaunch& launch);

// Once per step: position of each row and the place of its token in the cache, from the slices.
struct CudaRowsArgs {
  const DeviceSlice* slices = nullptr;
  const int32_t* tables = nullptr;
  int64_t table_pitch = 0;
  int sequences = 0, block_size = 64, rows = 0;
  int32_t* positions = nullptr;  // [rows]; 0 for rows of no slice
  int32_t* row_slots = nullptr;  // [rows]; -1 for rows of no slice
};
CudaError launch_cuda_rows(const CudaRowsArgs& args, const CudaLaunch& launch);

// Once per step: cosines and sines of every row's position.
struct CudaAnglesArgs {
  const int32_t* positions = nullptr;        // [rows]
  const float* inverse_frequency = nullptr;  // [rotary_dim / 2]
  float magnitude = 1;
  float* angles = nullptr;  // [rows, rotary_dim]
  int rows = 0, rotary_dim = 0;
};
CudaError launch_cuda_angles(const CudaAnglesArgs& args, const CudaLaunch& launch);

}  // namespace millrace
