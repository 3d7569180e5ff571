#include "kernels/activation/cuda/clamped_swiglu.cuh"
#include "kernels/activation/cuda/launch.h"
#include "kernels/cuda/vectors.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;

__device__ float activate(Activation kind, float x) {
  switch (kind) {
    case Activation::Silu:
      return x / (1 + __expf(-x));
    case Activation::GeluTanh:
      return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case Activation::GeluErf:
      return 0.5f * x * erfcf(-x * 0.70710678f);
    case Activation::Relu:
      return fmaxf(x, 0.0f);
    case Activation::ReluSquared:
      return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
    case Activation::ClampedSwiglu:
      break;
  }
  return x;
}

template <bool kWide>
__global__ void __launch_bounds__(kThreads) activation_kernel(const __grid_constant__ CudaActivationArgs a) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t eights = (a.cols + 7) / 8;
  const int64_t index = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (index >= a.rows * eights) return;
  const int64_t row = index / eights, column = index % eights * 8;
  const int count = static_cast<int>(min(a.cols - column, int64_t{8}));
  Eight x = load_eight<kWide>(a.x, row * a.x.stride + column, count);
  if (a.kind == Activation::ClampedSwiglu) {
    const Eight up = load_eight<kWide>(a.gate_with, row * a.gate_with.stride + column, count);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.at[i] = clamped_swiglu(x.at[i], up.at[i], a.clamp);
    store_eight<kWide>(a.out, row * a.out.stride + column, x, count);
    return;
  }
#pragma unroll
  for (float& value : x.at) value = activate(a.kind, value);
  if (a.gate_with.data != nullptr) {
    const Eight gate = load_eight<kWide>(a.gate_with, row * a.gate_with.stride + column, count);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.at[i] *= gate.at[i];
  }
  store_eight<kWide>(a.out, row * a.out.stride + column, x, count);
}

}  // namespace

CudaError launch_cuda_activation(const CudaActivationArgs& args, const CudaLaunch& launch) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  const bool wide = moves_by_eights(args.x, args.cols) && moves_by_eights(args.gate_with, args.cols) &&
                    moves_by_eights(args.out, args.cols);
  const int64_t work = static_cast<int64_t>(args.rows) * ((args.cols + 7) / 8);
  const dim3 grid(static_cast<unsigned>((work + kThreads - 1) / kThreads));
  return launch_kernel(wide ? activation_kernel<true> : activation_kernel<false>, grid, kThreads, 0, launch, args);
}

}  // namespace millrace
