// Epilogue of few.cuh: each thread takes one output of a token at a time, with either half of a shared norm. The code
// is short because it runs once.
#pragma once

#include "kernels/linear/cuda/shared_norm.cuh"

namespace millrace {

// Computes a token's 1 / rms from the front layer's sums of squares. Executed by one warp.
__device__ __forceinline__ void leave_norm_factor(const SharedNorm& norm, int token, float* factors) {
  const int parts = norm.k / static_cast<int>(kNormPart), lane = threadIdx.x % 32;
  float sum = 0;
#pragma unroll 4
  for (int i = lane; i < parts; i += 32) sum += __ldcg(norm.squares + token * parts + i);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if (lane == 0) factors[token] = rsqrtf(sum / static_cast<float>(norm.k) + norm.epsilon);
}

// For `threads` threads of each block of a cluster of `splits` blocks. Each block holds the sums of its part of K as
// [tile][token][kTileStride].
class FewOutputs {
 public:
  // Requests the inputs of a thread's first output early.
  __device__ __forceinline__ FewOutputs(const LinearOutput& out, const CudaNormAhead& ahead, int first_tile, int tiles,
                                        int splits, int threads)
      : out_(out),
        ahead_(ahead),
        each_bits_(out.gate_up ? 3 : 4),
        first_tile_(first_tile),
        items_((tiles * out.m) << each_bits_),
        splits_(splits),
        first_((splits > 1 ? cluster_rank() * threads : 0) + static_cast<int>(threadIdx.x)),
        step_(splits * threads) {
    const Item item(*this, first_);
    if (first_ >= items_ || item.column >= columns()) return;
    if (out_.accumulate) before_ = load_output(out_, item.token * out_.stride + item.column);
    if (ahead_.weights != nullptr) weight_ = ahead_.weights[item.column];
  }

  // `factors`: 1 / rms of each token, or null.
  __device__ __forceinline__ void store(const float* sums, const float* factors) const {
    if (splits_ > 1) cluster_barrier();
#pragma unroll 1
    for (int index = first_; index < items_; index += step_) {
      const Item item(*this, index);
      if (item.column >= columns()) break;
      store_one(item, sums, factors != nullptr ? factors[item.token] : 1.f, index == first_);
    }
    if (splits_ > 1) cluster_meet();  // keeps this block's shared memory alive until the others have read it
  }

 private:
  // Consecutive items are the 16 outputs of a tile (8 with gate_up), then those of the next token.
  struct Item {
    int tile, token, row, column;
    __device__ __forceinline__ Item(const FewOutputs& all, int index)
        : tile((index >> all.each_bits_) / all.out_.m),
          token((index >> all.each_bits_) - tile * all.out_.m),
          row(index & ((1 << all.each_bits_) - 1)),
          column(((all.first_tile_ + tile) << all.each_bits_) + row) {}
  };

  __device__ __forceinline__ void store_one(const Item& item, const float* sums, float factor, bool is_first) const {
    const float* at = sums + (item.tile * out_.m + item.token) * kTileStride + item.row;
    const int row = (first_tile_ + item.tile) * kTileRows + item.row;
    float y = factor * total(at) + bias(row);
    if (out_.gate_up) {
      y = silu_times(y, factor * total(at + 8) + bias(row + 8));
    } else if (out_.accumulate) {
      y += is_first ? before_ : load_output(out_, item.token * out_.stride + item.column);
    }
    LinearOutput out = out_;
    out.accumulate = false;
    const float squares = store_four(out, item.token, item.column, {y, 0, 0, 0}, 1);
    if (ahead_.weights != nullptr) store_ahead(item, y, is_first ? weight_ : ahead_.weights[item.column]);
    if (out_.sum_squares != nullptr) atomicAdd(out_.sum_squares + item.token, squares);
  }

  // First half of the norm that follows. Half a warp holds the 16 outputs of a tile.
  __device__ __forceinline__ void store_ahead(const Item& item, float y, float weight) const {
    auto* scaled = static_cast<__nv_bfloat16*>(ahead_.scaled) + item.token * ahead_.stride;
    scaled[item.column] = rounded<__nv_bfloat16>(y * weight);
    float squares = y * y;
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) {
      squares += __shfl_xor_sync(0xffffu << (threadIdx.x & 16), squares, mask);
    }
    const int part = static_cast<int>(kNormPart);
    if (item.column % part == 0) ahead_.squares[item.token * (out_.n / part) + item.column / part] = squares;
  }

  __device__ __forceinline__ float total(const float* at) const {
    if (splits_ == 1) return *at;
    float sum = 0;
#pragma unroll 1
    for (int split = 0; split < splits_; split += 2) {  // splits is a power of two
      sum += load_cluster_one(at, split) + load_cluster_one(at, split + 1);
    }
    return sum;
  }
  __device__ __forceinline__ int columns() const { return out_.gate_up ? out_.n / 2 : out_.n; }
  __device__ __forceinline__ float bias(int row) const { return out_.bias != nullptr ? out_.bias[row] : 0.f; }

  const LinearOutput& out_;
  const CudaNormAhead& ahead_;
  int each_bits_, first_tile_, items_, splits_, first_, step_;
  float before_ = 0, weight_ = 0;
};

}  // namespace millrace
