// Heads of 64, 128 or 256 elements, each held by as many lanes as it has vectors of eight, so that a kernel reads a
// head once. A block has kHeadThreads threads; grid.x counts blocks of heads, grid.y blocks of rows.
#pragma once

#include <type_traits>

#include "kernels/cuda/vectors.cuh"

namespace millrace {

constexpr int kHeadThreads = 128;
constexpr int kRowsOfManyHeads = 4;  // of a thread in prompts: as many loads in flight
constexpr int kManyHeadRows = 256;   // so many rows occupy a GPU although a thread takes several

// Sum over the kLanes neighbouring lanes of a head.
template <int kLanes>
__device__ inline float head_sum(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// The head and the column in it that a thread has. Threads beyond the last head repeat it and must not store.
template <int kLanes>
struct HeadPlace {
  static constexpr int kDim = 8 * kLanes;
  bool inside;
  int head, column;

  __device__ explicit HeadPlace(int heads) {
    const int own = static_cast<int>(blockIdx.x) * (kHeadThreads / kLanes) + static_cast<int>(threadIdx.x) / kLanes;
    inside = own < heads;
    head = min(own, heads - 1);
    column = static_cast<int>(threadIdx.x) % kLanes * 8;
  }
  __device__ int64_t in_row() const { return int64_t{head} * kDim + column; }
};

inline bool is_head_in_lanes(int dim) { return dim == 64 || dim == 128 || dim == 256; }

inline dim3 grid_of_heads(int rows, int heads, int dim) {
  const int each = kHeadThreads * 8 / dim, rows_each = rows >= kManyHeadRows ? kRowsOfManyHeads : 1;
  return {static_cast<unsigned>((heads + each - 1) / each), static_cast<unsigned>((rows + rows_each - 1) / rows_each)};
}

// Host: calls f(lanes of a head, rows of a thread) with integral constants.
template <class F>
auto with_heads_in_lanes(int rows, int dim, F f) {
  const auto with_rows = [&](auto lanes) {
    return rows >= kManyHeadRows ? f(lanes, std::integral_constant<int, kRowsOfManyHeads>())
                                 : f(lanes, std::integral_constant<int, 1>());
  };
  if (dim == 64) return with_rows(std::integral_constant<int, 8>());
  if (dim == 128) return with_rows(std::integral_constant<int, 16>());
  return with_rows(std::integral_constant<int, 32>());
}

}  // namespace millrace
