// RoPE of q and k together with the write of k and v into their pages, on a CUDA device.
#pragma once

#include "kernels/attention/cuda/launch.h"
#include "kernels/rope/style.h"

namespace millrace {

struct CudaRopeWriteArgs {
  RopeStyle style = RopeStyle::Halves;
  CudaMatrix q;                   // [rows, heads * head_dim], rotated in place
  CudaMatrix k, v;                // [rows, kv_heads * head_dim]; k is rotated on its way to its page
  const float* angles = nullptr;  // [rows, rotary_dim]: rotary_dim / 2 cosines, then as many sines; null: no rotation
  int rotary_dim = 0;
  DType kv = DType::BF16;  // F32, F16, BF16, Q8_0 or FP8
  void* keys = nullptr;    // [page][kv head][slot][head_dim] of one layer; null: rotates k in place and stores nothing
  void* values = nullptr;
  int heads = 0, kv_heads = 0, head_dim = 0, block_size = 64;
  const int32_t* row_slots = nullptr;  // [rows]: page * block_size + slot of each row's token; negative: not stored
  int rows = 0;
};
CudaError launch_cuda_rope_write(const CudaRopeWriteArgs& args, const CudaLaunch& launch);

}  // namespace millrace
