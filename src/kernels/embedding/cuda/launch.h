// Embedding lookup on a CUDA device: out[i] = table[ids[i]] * scale.
#pragma once

#include "kernels/cuda/launch.h"

namespace millrace {

struct CudaGatherArgs {
  CudaMatrix table;                 // [entries, cols]
  const int32_t* ids = nullptr;     // [rows]; an id outside the table gives zeros
  const int32_t* chosen = nullptr;  // a negative id means chosen[~id]; null: ids has none
  int64_t entries = 0;
  float scale = 1;
  bool accumulate = false;  // out += instead of out =, for position embeddings
  CudaMatrix out;           // [rows, cols]
  int rows = 0, cols = 0;
};
CudaError launch_cuda_gather(const CudaGatherArgs& args, const CudaLaunch& launch);

}  // namespace millrace
