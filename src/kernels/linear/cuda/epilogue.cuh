// Epilogue of the linear kernels: adds the partial sums of the warps and blocks that share K, applies bias, residual or
// SiLU * up, and stores.
//
// Partial sums lie in shared memory as [part][tile of 16 rows][token][kTileStride floats]. A tensor-core tile has 16
// rows, which hold 8 gate and 8 up rows.
#pragma once

#include <type_traits>

#include "kernels/cuda/number_range.cuh"
#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/families.h"

namespace millrace {

// 20 instead of 16: the fragments of a warp (rows g and tokens 2 t) then fall into 32 different banks.
inline constexpr int kTileStride = 20;

struct LinearOutput {
  void* y;
  int64_t stride;
  const float* bias;
  float* sum_squares;
  int n, m;
  DType type;
  bool accumulate, gate_up, aligned;  // aligned: four outputs can be stored at once
};

inline LinearOutput linear_output(const CudaLinearProblem& p, const CudaLinearArgs& a) {
  const size_t size = p.y == DType::F32 ? 4 : 2;
  const bool aligned = reinterpret_cast<uintptr_t>(a.y) % (4 * size) == 0 && a.y_stride % 4 == 0;
  return {a.y, a.y_stride, a.bias, a.sum_squares, int(p.n), int(p.m), p.y, p.accumulate, p.gate_up, aligned};
}

template <class T>
__device__ __forceinline__ float to_float(T v) {
  return static_cast<float>(v);
}

// Converts to T; f16 saturates.
template <class T>
__device__ __forceinline__ T rounded(float x) {
  if constexpr (std::is_same_v<T, __half>) x = within_half(x);
  return static_cast<T>(x);
}

// Stores `count` (at most 4) consecutive outputs; returns their sum of squares.
template <class T>
__device__ __forceinline__ float store_typed(T* y, float4 v, int count, bool accumulate, bool aligned) {
  float values[4] = {v.x, v.y, v.z, v.w};
  struct alignas(4 * sizeof(T)) Four {
    T at[4];
  };
  Four four;
  const bool together = aligned && count == 4;
  if (accumulate) {
    if (together) four = *reinterpret_cast<const Four*>(y);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!together && i < count) four.at[i] = y[i];
      if (i < count) values[i] += to_float(four.at[i]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    four.at[i] = rounded<T>(values[i]);
    if (i < count) sum += values[i] * values[i];
  }
  if (together) {
    *reinterpret_cast<Four*>(y) = four;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < count) y[i] = four.at[i];
    }
  }
  return sum;
}

__device__ __forceinline__ float store_four(const LinearOutput& out, int token, int column, float4 v, int count) {
  const int64_t at = token * out.stride + column;
  if (out.type == DType::BF16) {
    return store_typed(static_cast<__nv_bfloat16*>(out.y) + at, v, count, out.accumulate, out.aligned);
  }
  if (out.type == DType::F16) {
    return store_typed(static_cast<__half*>(out.y) + at, v, count, out.accumulate, out.aligned);
  }
  return store_typed(static_cast<float*>(out.y) + at, v, count, out.accumulate, out.aligned);
}

// The current output at an index.
__device__ __forceinline__ float load_output(const LinearOutput& out, int64_t at) {
  if (out.type == DType::BF16) return to_float(static_cast<const __nv_bfloat16*>(out.y)[at]);
  if (out.type == DType::F16) return to_float(static_cast<const __half*>(out.y)[at]);
  return static_cast<const float*>(out.y)[at];
}

__device__ __forceinline__ float4 add_bias(const LinearOutput& out, int row, float4 v) {
  if (out.bias == nullptr) return v;
  const auto at = [&](int i) { return row + i < out.n ? out.bias[row + i] : 0.f; };
  return {v.x + at(0), v.y + at(1), v.z + at(2), v.w + at(3)};
}

__device__ __forceinline__ float silu_times(float gate, float up) { return __fdividef(gate, 1.f + __expf(-gate)) * up; }

// `half` selects rows 4 half .. 4 half + 3 and the rows 8 below them: four gate rows with their up rows.
__device__ __forceinline__ void store_half_tile(const LinearOutput& out, int token, int tile_row, int half, float4 low,
                                                float4 high) {
  const int row = tile_row + 4 * half;
  low = add_bias(out, row, low);
  high = add_bias(out, row + 8, high);
  float squares = 0;
  if (out.gate_up) {
    const float4 v = {silu_times(low.x, high.x), silu_times(low.y, high.y), silu_times(low.z, high.z),
                      silu_times(low.w, high.w)};
    if (row + 8 < out.n) squares = store_four(out, token, tile_row / 2 + 4 * half, v, 4);
  } else {
    if (row < out.n) squares = store_four(out, token, row, low, min(4, out.n - row));
    if (row + 8 < out.n) squares += store_four(out, token, row + 8, high, min(4, out.n - row - 8));
  }
  if (out.sum_squares != nullptr) atomicAdd(out.sum_squares + token, squares);
}

__device__ __forceinline__ float4 add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// Adds up and stores the outputs of `tiles` tiles (rows from first_row, tokens from first_token): items `item`, `item`
// + `step`, ...
__device__ __forceinline__ void finish_items(const float* partials, int parts, int tiles, int tokens, int first_row,
                                             int first_token, int splits, int item, int step, const LinearOutput& out) {
  const int live = min(tokens, out.m - first_token);
  const int items = tiles * live * 2;
#pragma unroll 1
  for (; item < items; item += step) {
    // Adjacent threads take adjacent rows, so that stores coalesce.
    const int half = item % 2, tile = item / 2 % tiles, token = item / (2 * tiles);
    const float* at = partials + (tile * tokens + token) * kTileStride + 4 * half;
    float4 low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
#pragma unroll 1  // unrolling would determine the register count of the whole kernel
    for (int part = 0; part < parts; ++part, at += tiles * tokens * kTileStride) {
      if (splits == 1) {
        low = add(low, *reinterpret_cast<const float4*>(at));
        high = add(high, *reinterpret_cast<const float4*>(at + 8));
      }
#pragma unroll 1
      for (int split = 0; split + 1 < splits; split += 2) {  // splits is a power of two
        const float4 low0 = load_cluster(at, split), high0 = load_cluster(at + 8, split);
        const float4 low1 = load_cluster(at, split + 1), high1 = load_cluster(at + 8, split + 1);
        low = add(low, add(low0, low1));
        high = add(high, add(high0, high1));
      }
    }
    store_half_tile(out, first_token + token, first_row + tile * kTileRows, half, low, high);
  }
}

// Called by all `threads` threads of every block of a cluster. The `splits` blocks of the cluster share the outputs of
// their rows.
__device__ __forceinline__ void finish_tiles(const float* partials, int parts, int tiles, int tokens, int first_row,
                                             int first_token, int splits, int threads, const LinearOutput& out) {
  if (splits > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  const int rank = splits > 1 ? cluster_rank() : 0;
  finish_items(partials, parts, tiles, tokens, first_row, first_token, splits, rank * threads + int(threadIdx.x),
               splits * threads, out);
  if (splits > 1) cluster_meet();  // keeps this block's shared memory alive until the others have read it
}

// For warps that store nothing: takes part in the barriers of finish_tiles.
__device__ __forceinline__ void attend_finish(int splits) {
  if (splits > 1) {
    cluster_barrier();
    cluster_meet();
  } else {
    __syncthreads();
  }
}

// Stores a warp's accumulators of a 16 x 8 tile where finish_tiles expects them.
__device__ __forceinline__ void put_fragment(float* tile, int token0, const float (&c)[4]) {
  const int lane = threadIdx.x % 32, row = lane / 4, token = token0 + lane % 4 * 2;
  tile[token * kTileStride + row] = c[0];
  tile[(token + 1) * kTileStride + row] = c[1];
  tile[token * kTileStride + row + 8] = c[2];
  tile[(token + 1) * kTileStride + row + 8] = c[3];
}

}  // namespace millrace
