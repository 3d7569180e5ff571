// Attention for every KV format and head size, with f32 arithmetic.
#pragma once

#include "kernels/attention/cuda/launch.h"

namespace millrace {

constexpr int kGeneralThreads = 256;
constexpr int kGeneralMaxDim = 512;

int general_shared_bytes(int head_dim);
CudaError launch_general_attention(const CudaAttentionShape& shape, int grid, const CudaAttentionArgs& args,
                                   const CudaLaunch& launch);

}  // namespace millrace
