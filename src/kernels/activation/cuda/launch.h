// Activation functions on a CUDA device, alone or multiplied with a second input.
#pragma once

#include "kernels/activation/kind.h"
#include "kernels/cuda/launch.h"

namespace millrace {

struct CudaActivationArgs {
  Activation kind = Activation::Silu;
  CudaMatrix x;          // [rows, cols]
  CudaMatrix gate_with;  // out = f(x) * gate_with, or f(x) where it has no data
  CudaMatrix out;        // may be x itself
  int rows = 0, cols = 0;
};
CudaError launch_cuda_activation(const CudaActivationArgs& args, const CudaLaunch& launch);

}  // namespace millrace
