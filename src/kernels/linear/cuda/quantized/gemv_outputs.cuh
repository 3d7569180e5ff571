// Turns the sums of the warps of gemv.cuh into outputs.
#pragma once

#include "kernels/linear/cuda/quantized/gemv_x.cuh"

namespace millrace {

// Outputs of a block's tiles: each thread takes one at a time, 16 per tile, or 8 with gate_up.
class TileOutputs {
 public:
  // Partial sums lie as [tile][part][16 rows].
  __device__ __forceinline__ TileOutputs(const LinearOutput& out, const CudaNormAhead& ahead, int first_tile, int parts)
      : out_(out),
        ahead_(ahead),
        each_bits_(out.gate_up ? 3 : 4),
        first_column_(first_tile << each_bits_),
        parts_(parts) {
    // Requests the inputs of a thread's first output early.
    const int column = first_column_ + static_cast<int>(threadIdx.x);
    if (out_.accumulate && column < columns()) before_ = load_output(out_, column);
    if (ahead_.weights != nullptr && column < columns()) weight_ = ahead_.weights[column];
  }

  // Adds up and stores the outputs of the block's tiles [first, end).
  __device__ __forceinline__ void store(const float* partials, int first, int end, float factor) const {
#pragma unroll 1
    for (int item = (first << each_bits_) + int(threadIdx.x); item < end << each_bits_; item += kGemvThreads) {
      const int tile = item >> each_bits_, row_of_tile = item - (tile << each_bits_);
      const float* from = partials + (tile - first) * parts_ * kTileRows + row_of_tile;
      const int column = first_column_ + item;
      if (column >= columns()) break;
      const int row = out_.gate_up ? column / 8 * 16 + column % 8 : column;
      float y = factor * total(from) + bias(row);
      if (out_.gate_up) {
        y = silu_times(y, factor * total(from + 8) + bias(row + 8));
      } else if (out_.accumulate) {
        y += item == static_cast<int>(threadIdx.x) ? before_ : load_output(out_, column);
      }
      LinearOutput out = out_;
      out.accumulate = false;
      const float squares = store_four(out, 0, column, {y, 0, 0, 0}, 1);
      if (ahead_.weights != nullptr) {
        store_ahead(column, y, item == static_cast<int>(threadIdx.x) ? weight_ : ahead_.weights[column]);
      }
      if (out_.sum_squares != nullptr) atomicAdd(out_.sum_squares, squares);
    }
  }

 private:
  // First half of the norm that follows. Half a warp holds the 16 outputs of a tile.
  __device__ __forceinline__ void store_ahead(int column, float y, float weight) const {
    static_cast<__nv_bfloat16*>(ahead_.scaled)[column] = rounded<__nv_bfloat16>(y * weight);
    float squares = y * y;
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) {
      squares += __shfl_xor_sync(0xffffu << (threadIdx.x & 16), squares, mask);
    }
    if (column % kNormPart == 0) ahead_.squares[column / kNormPart] = squares;
  }
  __device__ __forceinline__ int columns() const { return out_.gate_up ? out_.n / 2 : out_.n; }
  __device__ __forceinline__ float bias(int row) const { return out_.bias != nullptr ? out_.bias[row] : 0.f; }
  __device__ __forceinline__ float total(const float* from) const {
    float sum = 0;
    if (parts_ == kRingWarps) {
#pragma unroll  // reads all of them at once
      for (int part = 0; part < kRingWarps; ++part) sum += from[part * kTileRows];
    } else {
#pragma unroll 1
      for (int part = 0; part < parts_; ++part) sum += from[part * kTileRows];
    }
    return sum;
  }

  const LinearOutput& out_;
  const CudaNormAhead& ahead_;
  int each_bits_, first_column_, parts_;  // a tile has 2^each_bits_ outputs
  float before_ = 0, weight_ = 0;
};

// Stores a warp's sums of a tile, rows in order. Of each two lanes, one adds row g, the other row g + 8.
__device__ __forceinline__ void put_rows(float* place, int lane, float (&sums)[2]) {
  const bool odd = lane % 2 != 0;
  float sum = odd ? sums[1] : sums[0];
  sum += __shfl_xor_sync(0xffffffffu, odd ? sums[0] : sums[1], 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (lane % 4 < 2) place[lane / 4 + 8 * (lane % 4)] = sum;
  sums[0] = sums[1] = 0;
}

}  // namespace millrace
