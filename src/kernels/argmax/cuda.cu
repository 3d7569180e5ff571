#include "hardware/cuda_device.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cost.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda_lists.h"

namespace millrace {
namespace {

constexpr int kThreads = 1024;

struct Best {
  float value;
  int32_t id;  // -1: nothing yet
};

// Ties go to the lowest id, so that the result does not depend on who saw which part.
__device__ Best better(Best a, Best b) {
  if (b.id < 0) return a;
  if (a.id < 0) return b;
  return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

__device__ Best best_of_warp(Best best) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const Best other{__shfl_xor_sync(~0u, best.value, step), __shfl_xor_sync(~0u, best.id, step)};
    best = better(best, other);
  }
  return best;
}

struct Params {
  const float* logits;
  int64_t stride;
  int cols;
  bool aligned;  // rows begin at multiples of sixteen bytes
  int32_t* ids;
};

__global__ void __launch_bounds__(kThreads) argmax(Params p) {
  __shared__ Best parts[kThreads / 32];
  allow_dependents();
  wait_for_predecessors();
  const float* row = p.logits + blockIdx.x * p.stride;
  Best best{-INFINITY, -1};
  const auto look_at = [&](float value, int i) {
    if (value > best.value) best = {value, i};
  };
  // Four at once: a row is read by one block, whose loads must be wide to be fast. Threads see their ids in order.
  const int fours = p.aligned ? p.cols / 4 : 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < fours; i += kThreads) {
    const float4 values = reinterpret_cast<const float4*>(row)[i];
    look_at(values.x, 4 * i);
    look_at(values.y, 4 * i + 1);
    look_at(values.z, 4 * i + 2);
    look_at(values.w, 4 * i + 3);
  }
  for (int i = 4 * fours + threadIdx.x; i < p.cols; i += kThreads) look_at(row[i], i);
  best = best_of_warp(best);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = best_of_warp(parts[threadIdx.x]);
  if (threadIdx.x == 0) p.ids[blockIdx.x] = best.id;
}

class CudaArgmax final : public Kernel<ArgmaxOp> {
 public:
  std::string_view name() const override { return "cuda_rows"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return is_gpu(hardware); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return gpu_us(4.0 * double(p.rows * p.cols), hardware, 0.1);
  }
  void run(const Args& a, const Executor& executor) const override {
    const auto* logits = a.logits.row<float>(0);
    const bool aligned = reinterpret_cast<uintptr_t>(logits) % 16 == 0 && a.logits.stride % 4 == 0;
    const Params params{logits, a.logits.stride, static_cast<int>(a.logits.cols), aligned, a.ids};
    check_launch(
        launch_kernel(argmax, dim3(static_cast<unsigned>(a.logits.rows)), kThreads, 0, cuda_launch(executor), params),
        "starting argmax");
  }
};

}  // namespace

KernelList<ArgmaxOp> cuda_argmax_kernels() {
  static const CudaArgmax kernel;
  return {&kernel};
}

}  // namespace millrace
