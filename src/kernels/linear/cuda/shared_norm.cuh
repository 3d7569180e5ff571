// The two halves of a norm that two linear layers share (CudaNormAhead), in the epilogue of a flat GEMM.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"

namespace millrace {

enum class NormHalf { None, Ahead, Behind };

struct SharedNorm {
  CudaNormAhead ahead;
  const float* squares;  // of the rows before the norm, from the front layer
  float epsilon;
  int k;
};

// Computes 1 / rms of every token from the front layer's sums of squares. Executed by otherwise idle warps.
__device__ __forceinline__ void find_scales(const SharedNorm& norm, int tokens, float* scales, int warp, int warps) {
  constexpr int kAtOnce = 8;
  const int fours = norm.k / static_cast<int>(4 * kNormPart), lane = threadIdx.x % 32;
#pragma unroll 1
  for (int first = warp; first < tokens; first += warps * kAtOnce) {
    float sums[kAtOnce] = {};
#pragma unroll 1
    for (int i = lane; i < fours; i += 32) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        // No loads for missing tokens: all blocks read the same lines, and a few lines are slow to serve to all of
        // them.
        const int token = first + j * warps;
        const uint4 v =
            load_shared_input_if(reinterpret_cast<const float4*>(norm.squares) + token * fours + i, token < tokens);
        sums[j] += (__uint_as_float(v.x) + __uint_as_float(v.y)) + (__uint_as_float(v.z) + __uint_as_float(v.w));
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sums[j] += __shfl_xor_sync(0xffffffffu, sums[j], mask);
      const int token = first + j * warps;
      if (lane == 0 && token < tokens) scales[token] = rsqrtf(sums[j] / static_cast<float>(norm.k) + norm.epsilon);
    }
  }
}

__device__ __forceinline__ float4 times(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ __forceinline__ float4 times(float4 a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }
__device__ __forceinline__ float sum_of(float4 a) { return (a.x + a.y) + (a.z + a.w); }
__device__ __forceinline__ float4 four_at(const float* p) { return *reinterpret_cast<const float4*>(p); }

// Eight outputs of a token: four rows of a tile and the four rows 8 below them. Adjacent threads take adjacent rows, so
// that stores coalesce.
struct OutputItem {
  int half, tile, token;
  __device__ OutputItem(int index, int tiles) : half(index % 2), tile(index / 2 % tiles), token(index / (2 * tiles)) {}
  __device__ int row(int first_row) const { return first_row + tile * kTileRows + 4 * half; }
};

// Inputs of the front layer for an item besides its sums: the residual and the norm's weights.
struct ResidualItem {
  float4 low, high, low_weights, high_weights;

  __device__ void load_weights(const SharedNorm& norm, int row) {
    low_weights = four_at(norm.ahead.weights + row);
    high_weights = four_at(norm.ahead.weights + row + 8);
  }
  __device__ void load_output(const LinearOutput& out, int row, int token) {
    const float* y = static_cast<const float*>(out.y) + token * out.stride + row;
    low = __ldcg(reinterpret_cast<const float4*>(y));
    high = __ldcg(reinterpret_cast<const float4*>(y + 8));
  }
};

template <class T>
__device__ __forceinline__ void store_scaled(T* to, float4 v) {
  struct alignas(4 * sizeof(T)) Four {
    T at[4];
  };
  *reinterpret_cast<Four*>(to) = {rounded<T>(v.x), rounded<T>(v.y), rounded<T>(v.z), rounded<T>(v.w)};
}

// Adds to the residual stream and stores the first half of its norm. Adjacent lanes hold the two halves of a tile.
template <class T>
__device__ __forceinline__ void store_ahead(const LinearOutput& out, const SharedNorm& norm, const OutputItem& item,
                                            int row, const ResidualItem& before, float4 low, float4 high) {
  low = add(add_bias(out, row, low), before.low);
  high = add(add_bias(out, row + 8, high), before.high);
  float* y = static_cast<float*>(out.y) + item.token * out.stride + row;
  *reinterpret_cast<float4*>(y) = low;
  *reinterpret_cast<float4*>(y + 8) = high;
  T* scaled = static_cast<T*>(norm.ahead.scaled) + item.token * norm.ahead.stride + row;
  store_scaled(scaled, times(low, before.low_weights));
  store_scaled(scaled + 8, times(high, before.high_weights));
  float squares = sum_of(times(low, low)) + sum_of(times(high, high));
  squares += __shfl_xor_sync(3u << (threadIdx.x % 32 & ~1u), squares, 1);
  if (item.half == 0) norm.ahead.squares[item.token * (out.n / kNormPart) + row / kNormPart] = squares;
}

// Sum of four outputs over all blocks of the cluster.
__device__ __forceinline__ float4 add_splits(const float* at, int splits) {
  if (splits == 1) return four_at(at);
  float4 sum = {0, 0, 0, 0};
#pragma unroll 1
  for (int split = 0; split < splits; split += 2) {  // splits is a power of two
    sum = add(sum, add(load_cluster(at, split), load_cluster(at, split + 1)));
  }
  return sum;
}

// Replaces finish_tiles if a norm is shared. For kThreads threads of each block of the cluster; the others call
// attend_finish().
template <class T, NormHalf kHalf, int kThreads>
class SharedFinish {
 public:
  __device__ __forceinline__ SharedFinish(const LinearOutput& out, const SharedNorm& norm, int rows, int first_row,
                                          int splits)
      : out_(out), norm_(norm), tiles_(rows / kTileRows), first_row_(first_row), splits_(splits) {
    const int rank = splits > 1 ? cluster_rank() : 0;
    first_ = rank * kThreads + static_cast<int>(threadIdx.x);
  }

  // Call before the products: loads the inputs of the thread's first item early.
  __device__ __forceinline__ void prepare() {
    if constexpr (kHalf == NormHalf::Ahead) {
      const OutputItem item(first_, tiles_);
      const int row = item.row(first_row_);
      const bool has_one = first_ < tiles_ * out_.m * 2 && row < out_.n;
      if (has_one) residual_.load_weights(norm_, row);
      wait_for_previous_kernel();
      if (has_one) residual_.load_output(out_, row, item.token);
    }
  }

  // `partials` as for finish_tiles, with one part.
  __device__ __forceinline__ void run(const float* partials, int tokens, const float* scales) {
    if (splits_ > 1) {
      cluster_barrier();
    } else {
      __syncthreads();
    }
#pragma unroll 1
    for (int index = first_; index < tiles_ * out_.m * 2; index += splits_ * kThreads) {
      const OutputItem item(index, tiles_);
      const float* at = partials + (item.tile * tokens + item.token) * kTileStride + 4 * item.half;
      store(index, item, add_splits(at, splits_), add_splits(at + 8, splits_), scales);
    }
    if (splits_ > 1) cluster_meet();  // keeps this block's shared memory alive until the others have read it
  }

 private:
  __device__ __forceinline__ void store(int index, const OutputItem& item, float4 low, float4 high,
                                        const float* scales) {
    const int row = item.row(first_row_);
    if constexpr (kHalf == NormHalf::Behind) {
      const float scale = scales[item.token];
      store_half_tile(out_, item.token, row - 4 * item.half, item.half, times(low, scale), times(high, scale));
    } else if (row < out_.n) {
      if (index != first_) {
        residual_.load_weights(norm_, row);
        residual_.load_output(out_, row, item.token);
      }
      store_ahead<T>(out_, norm_, item, row, residual_, low, high);
    }
  }

  const LinearOutput& out_;
  const SharedNorm& norm_;
  int tiles_, first_row_, splits_, first_;
  ResidualItem residual_;
};

}  // namespace millrace
