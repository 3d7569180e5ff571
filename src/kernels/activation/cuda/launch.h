// Activation functions on a CUDA device, optionally multiplied with a second input.
#pragma once

#include "kernels/activation/kind.h"
#include "kernels/cuda/launch.h"

namespace millrace {

struct CudaActivationArgs {
  Activation kind = Activation::Silu;
  CudaMatrix x;          // [rows, cols]
  CudaMatrix gate_with;  // out = f(x) * gate_with; no data: out = f(x)
  CudaMatrix out;        // may alias x
  int rows = 0, cols = 0;
  SwigluClamp clamp;  // of ClampedSwiglu
};
CudaError launch_cuda_activation(const CudaActivationArgs& args, const CudaLaunch& launch);

}  // namespace millrace
