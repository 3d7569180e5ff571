#include "kernels/grouped_linear/cuda/sum_pairs.h"

#include "base/rounding.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/launch_kernel.h"

namespace millrace {
namespace {

constexpr int kThreads = 128, kEach = 8;  // columns of a thread

// Pairs that chose other groups have no products.
struct ChosenPairs {
  const int32_t* chosen;  // null: all pairs have products
  int first, groups, per_row;

  // Bit i: pair first_pair + i has products, for i below `count`.
  __device__ uint32_t live(int64_t first_pair, int count) const {
    uint32_t bits = (1u << count) - 1;
    for (int i = 0; i < count && chosen != nullptr; ++i) {
      const int group = chosen[first_pair + i] - first;
      if (group < 0 || group >= groups) bits &= ~(1u << i);
    }
    return bits;
  }
};

// Eight products of a pair that are read once: 16 bytes at a time, or the first `count` one by one. Zeros if not
// `live`.
template <class T, bool kWide>
struct Products {
  static constexpr int kWords = sizeof(T) / 2;
  uint4 words[kWords];

  __device__ __forceinline__ void load(const T* from, bool live, int count) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kWide) {  // no branch, so that the loads of several pairs are in flight
        words[i] = load_shared_input_if(reinterpret_cast<const uint4*>(from) + i, live);
      } else {
        words[i] = {0, 0, 0, 0};
      }
    }
#pragma unroll
    for (int i = 0; i < (kWide ? 0 : kEach); ++i) {
      if (live && i < count) reinterpret_cast<T*>(words)[i] = from[i];
    }
  }
  __device__ __forceinline__ void add_to(Eight& sums) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) sums.at[i] += to_float(reinterpret_cast<const T*>(words)[i]);
  }
};

// A thread adds up eight columns of a row: it requests the products of some pairs and what it adds to, then adds the
// products in the order of the pairs.
template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    add_products(const T* products, const ChosenPairs pairs, unsigned rows, unsigned columns, const CudaMatrix y) {
  constexpr int kAtOnce = 8;  // one memory latency for the pairs of most models
  const unsigned item = blockIdx.x * kThreads + threadIdx.x, of_row = (columns + kEach - 1) / kEach;
  const unsigned row = item / of_row, column = (item - row * of_row) * kEach;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (row >= rows) return;
  const int count = min(kEach, static_cast<int>(columns - column));
  const int64_t first_pair = static_cast<int64_t>(row) * pairs.per_row, at = row * y.stride + column;
  const T* from = products + first_pair * columns + column;
  Eight result = {}, sums = {};
#pragma unroll 1
  for (int first = 0; first < pairs.per_row; first += kAtOnce) {
    const uint32_t live = pairs.live(first_pair + first, min(kAtOnce, pairs.per_row - first));
    Products<T, kWide> some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      some[i].load(from + static_cast<int64_t>(first + i) * columns, (live >> i & 1) != 0, count);
    }
    if (first == 0) result = load_eight<kWide>(y, at, count);
#pragma unroll
    for (const auto& eight : some) eight.add_to(sums);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) result.at[i] += sums.at[i];
  store_eight<kWide>(y, at, result, count);
}

template <class T>
cudaError_t start(const Matrix& products, const ChosenPairs& pairs, const Matrix& y, const CudaStep& step) {
  const auto* from = reinterpret_cast<const T*>(products.data);
  const CudaMatrix to = cuda_matrix(y);
  const bool wide = moves_by_eights(to, y.cols) && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(y.rows * ceil_div(y.cols, kEach), kThreads)));
  shape.threads = kThreads;
  shape.most_shared = true;
  return launch_kernel(wide ? add_products<T, true> : add_products<T, false>, shape, step, from, pairs, y.rows, y.cols,
                       to);
}

}  // namespace

cudaError_t add_pairs(const Matrix& products, const Routing& routing, const Matrix& y, const CudaStep& step) {
  const ChosenPairs pairs{routing.partial ? routing.chosen : nullptr, static_cast<int>(routing.first),
                          static_cast<int>(routing.groups), static_cast<int>(routing.per_row)};
  return products.dtype == DType::BF16 ? start<__nv_bfloat16>(products, pairs, y, step)
                                       : start<float>(products, pairs, y, step);
}

}  // namespace millrace
