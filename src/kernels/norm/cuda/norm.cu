#include "kernels/cuda/vectors.cuh"
#include "kernels/norm/cuda/launch.h"

namespace millrace {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kGroupWarps = 4;

// Sum over all threads of the block; `parts` holds one number per warp.
__device__ float block_sum(float x, float* parts) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / 32 ? parts[lane] : 0.0f);
}

// One row or group: elements [begin, begin + cols) of a row. Its weights begin at `weights`.
struct Place {
  int64_t row, begin;
  int cols, weights;
};

template <bool kWide>
__device__ Eight load(const CudaNormArgs& a, const Place& at, int column, int count) {
  return load_eight<kWide>(a.x, at.row * a.x.stride + at.begin + column, count);
}

__device__ Eight load_weights(const float* from, int column, int count) {
  const bool whole = from != nullptr && count >= 8;
  if (whole && reinterpret_cast<uintptr_t>(from + column) % 16 == 0) return widen(from + column);
  Eight weights;
#pragma unroll
  for (int i = 0; i < 8; ++i) weights.at[i] = i < count && from != nullptr ? from[column + i] : 1.0f;
  return weights;
}

template <bool kWide>
__device__ void store_normed(const CudaNormArgs& a, const Place& at, int column, int count, const Eight& x,
                             const Eight& weights, float mean, float inverse) {
  Eight y;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    y.at[i] = (x.at[i] - mean) * inverse * weights.at[i];
    if (i < count && a.bias != nullptr) y.at[i] += a.bias[at.weights + column + i];
  }
  if (a.accumulate) {
    const Eight before = load_eight<kWide>(a.out, at.row * a.out.stride + at.begin + column, count);
#pragma unroll
    for (int i = 0; i < 8; ++i) y.at[i] += before.at[i];
  }
  store_eight<kWide>(a.out, at.row * a.out.stride + at.begin + column, y, count);
}

__device__ float squares(const Eight& x, float mean, int count) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) sum += (x.at[i] - mean) * (x.at[i] - mean);
  }
  return sum;
}

__device__ float total(const Eight& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += x.at[i];
  return sum;
}

// One block per row. The row stays in registers: each thread holds kEach vectors of eight.
template <int kEach, bool kWide>
__global__ void __launch_bounds__(kMaxThreads) norm_rows(const __grid_constant__ CudaNormArgs a) {
  __shared__ float parts[32];
  allow_dependents();
  Eight x[kEach] = {}, weights[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {  // no kernel writes the weights: load them before the wait for x
    const int column = (e * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
    weights[e] = load_weights(a.weight, column, min(8, a.cols - column));
  }
  wait_for_predecessors();
  const Place at{blockIdx.x, 0, a.cols, 0};
  float mean = 0, variance = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int column = (e * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
    if (column < a.cols) x[e] = load<kWide>(a, at, column, min(8, a.cols - column));
  }
  if (a.layer) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) mean += total(x[e]);
    mean = block_sum(mean, parts) / static_cast<float>(a.cols);
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int column = (e * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
    variance += squares(x[e], mean, a.cols - column);
  }
  const float inverse = rsqrtf(block_sum(variance, parts) / static_cast<float>(a.cols) + a.epsilon);
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int column = (e * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
    if (column < a.cols) store_normed<kWide>(a, at, column, min(8, a.cols - column), x[e], weights[e], mean, inverse);
  }
}

// One warp per group; also takes rows too long for registers, as one group. Reads x two or three times, only the first
// from memory.
template <bool kWide>
__global__ void __launch_bounds__(kGroupWarps * 32) norm_groups(const __grid_constant__ CudaNormArgs a) {
  allow_dependents();
  wait_for_predecessors();
  const int64_t index = int64_t{blockIdx.x} * kGroupWarps + threadIdx.x / 32;
  if (index >= int64_t{a.rows} * a.groups) return;
  const int cols = a.cols / a.groups, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t group = index % a.groups, begin = group * cols;
  const float* weight = a.second_weight != nullptr && group >= a.second_from ? a.second_weight : a.weight;
  const Place at{index / a.groups, begin, cols, a.weights_per_group ? static_cast<int>(begin) : 0};
  float mean = 0, variance = 0;
  if (a.layer) {
    for (int column = lane * 8; column < cols; column += 256) {
      mean += total(load<kWide>(a, at, column, min(8, cols - column)));
    }
    mean = warp_sum(mean) / static_cast<float>(cols);
  }
  for (int column = lane * 8; column < cols; column += 256) {
    const int count = min(8, cols - column);
    variance += squares(load<kWide>(a, at, column, count), mean, count);
  }
  const float inverse = rsqrtf(warp_sum(variance) / static_cast<float>(cols) + a.epsilon);
  for (int column = lane * 8; column < cols; column += 256) {
    const int count = min(8, cols - column);
    const Eight x = load<kWide>(a, at, column, count);
    store_normed<kWide>(a, at, column, count, x, load_weights(weight, at.weights + column, count), mean, inverse);
  }
}

template <bool kWide>
CudaError launch_rows(const CudaNormArgs& args, const CudaLaunch& launch) {
  const int eights = (args.cols + 7) / 8;
  const int each = (eights + kMaxThreads - 1) / kMaxThreads;
  const int threads = ((eights + each - 1) / each + 31) / 32 * 32;
  const dim3 grid(static_cast<unsigned>(args.rows));
  if (each == 1) return launch_kernel(norm_rows<1, kWide>, grid, threads, 0, launch, args);
  return launch_kernel(norm_rows<2, kWide>, grid, threads, 0, launch, args);
}

template <bool kWide>
CudaError launch_norm(const CudaNormArgs& args, const CudaLaunch& launch) {
  if (args.groups == 1 && args.cols <= 2 * kMaxThreads * 8) return launch_rows<kWide>(args, launch);
  const int64_t groups = static_cast<int64_t>(args.rows) * args.groups;
  const dim3 grid(static_cast<unsigned>((groups + kGroupWarps - 1) / kGroupWarps));
  return launch_kernel(norm_groups<kWide>, grid, kGroupWarps * 32, 0, launch, args);
}

}  // namespace

CudaError launch_cuda_norm(const CudaNormArgs& args, const CudaLaunch& launch) {
  if (args.rows <= 0 || args.cols <= 0) return cudaSuccess;
  if (args.groups < 1 || args.cols % args.groups != 0) return cudaErrorInvalidValue;
  if (are_head_norms(args)) return launch_head_norms(args, launch);
  const int cols = args.cols / args.groups;
  const bool wide = moves_by_eights(args.x, cols) && moves_by_eights(args.out, cols);
  return wide ? launch_norm<true>(args, launch) : launch_norm<false>(args, launch);
}

}  // namespace millrace
