// Norms on a CUDA device, over rows or over equal groups within each row (per-head norms of q and k).
#pragma once

#include "kernels/cuda/launch.h"

namespace millrace {

struct CudaNormArgs {
  CudaMatrix x;                   // [rows, cols]
  CudaMatrix out;                 // may alias x
  const float* weight = nullptr;  // [cols / groups]; null: ones
  const float* bias = nullptr;    // as weight, LayerNorm only; null: zeros
  bool layer = false;             // LayerNorm instead of RMSNorm
  float epsilon = 1e-5f;
  int rows = 0, cols = 0, groups = 1;
  bool accumulate = false;               // out += the norm
  bool weights_per_group = false;        // weight and bias are [cols]
  const float* second_weight = nullptr;  // of the groups from second_from on
  int second_from = 0;
};
CudaError launch_cuda_norm(const CudaNormArgs& args, const CudaLaunch& launch);

// Whether norms over groups are plain RMS norms of heads of 64, 128 or 256 elements, and the kernel for these.
bool are_head_norms(const CudaNormArgs& args);
CudaError launch_head_norms(const CudaNormArgs& args, const CudaLaunch& launch);

}  // namespace millrace
