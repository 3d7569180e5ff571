#include "kernels/grouped_linear/cuda/sum_pairs.h"

#include "base/rounding.h"
#include "kernels/cuda/values.cuh"
#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/launch_kernel.h"

namespace millrace {
namespace {

constexpr int kThreads = 256, kEach = 4;  // columns of a thread

// The products are rows without padding; `columns` is a multiple of kEach.
__device__ float4 four_products(const std::byte* products, DType type, int64_t at) {
  if (type == DType::F32) return __ldcg(reinterpret_cast<const float4*>(products) + at / kEach);
  const uint2 two = __ldcg(reinterpret_cast<const uint2*>(products) + at / kEach);
  const float2 low = unpack2<__nv_bfloat16>(two.x), high = unpack2<__nv_bfloat16>(two.y);
  return {low.x, low.y, high.x, high.y};
}

// Pairs that chose other groups have no products.
struct ChosenPairs {
  const int32_t* chosen;  // null: all pairs have products
  int first, groups, per_row;

  __device__ bool has(int64_t pair) const {
    if (chosen == nullptr) return true;
    const int group = chosen[pair] - first;
    return group >= 0 && group < groups;
  }
};

__global__ void __launch_bounds__(kThreads)
    add_products(const std::byte* products, DType type, const ChosenPairs pairs, int columns, const GpuMatrix y) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = item / (columns / kEach);
  const int column = static_cast<int>(item % (columns / kEach)) * kEach;
  if (row >= y.rows) return;
  float sums[kEach] = {0, 0, 0, 0};
#pragma unroll 4
  for (int i = 0; i < pairs.per_row; ++i) {
    if (!pairs.has(row * pairs.per_row + i)) continue;
    const float4 four = four_products(products, type, (row * pairs.per_row + i) * columns + column);
    sums[0] += four.x, sums[1] += four.y, sums[2] += four.z, sums[3] += four.w;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) y.set(row, column + i, y.get(row, column + i) + sums[i]);
}

__global__ void __launch_bounds__(kThreads)
    add_single_products(const GpuMatrix products, const ChosenPairs pairs, const GpuMatrix y) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, row = item / y.cols;
  const int64_t column = item % y.cols;
  if (row >= y.rows) return;
  float sum = 0;
  for (int64_t pair = row * pairs.per_row; pair < (row + 1) * pairs.per_row; ++pair) {
    if (pairs.has(pair)) sum += products.get(pair, column);
  }
  y.set(row, column, y.get(row, column) + sum);
}

}  // namespace

cudaError_t add_pairs(const Matrix& products, const Routing& routing, const Matrix& y, const CudaStep& step) {
  const ChosenPairs pairs{routing.partial ? routing.chosen : nullptr, static_cast<int>(routing.first),
                          static_cast<int>(routing.groups), static_cast<int>(routing.per_row)};
  const bool wide = y.cols % kEach == 0 && products.stride == y.cols;
  const int64_t items = y.rows * (wide ? y.cols / kEach : y.cols);
  const LaunchShape shape{dim3(static_cast<unsigned>(ceil_div(items, kThreads))), kThreads};
  if (!wide)
    return launch_kernel(add_single_products, shape, step, GpuMatrix(products), pairs, GpuMatrix(y));
  return launch_kernel(add_products, shape, step, products.data, products.dtype, pairs,
                       static_cast<int>(y.cols), GpuMatrix(y));
}

}  // namespace millrace
