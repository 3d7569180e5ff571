// Outputs of a tile on their way to memory. A store instruction of accumulators covers eight outputs of four pairs,
// which are pieces of 16 bytes; a prompt would spend more time on them than on the products. So the outputs of a block
// are collected in shared memory and stored as rows.
#pragma once

#include "kernels/grouped_linear/cuda/grouped.cuh"

namespace millrace {

class StagedOutputs {
 public:
  // `width`: outputs of the block for each pair, a multiple of four.
  __device__ StagedOutputs(float* shared, int width) : data_(shared), width_(width) {}
  static constexpr int bytes(int pairs, int width) { return pairs * (width + kPad) * 4; }

  __device__ void put(int pair, int output, float value) { data_[pair * (width_ + kPad) + output] = value; }

  // Call after __syncthreads(). `first`: the block's first output.
  __device__ void store(const GroupedParams& p, const PairTile& tile, int first) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const bool whole = p.y.stride % 4 == 0 && p.outputs % 4 == 0;
    for (int i = warp; i < tile.count; i += static_cast<int>(blockDim.x) / 32) {
      const int pair = p.order[tile.first + i];
      for (int at = 4 * lane; at < min(width_, p.outputs - first); at += 128) {
        const float4 four = *reinterpret_cast<const float4*>(data_ + i * (width_ + kPad) + at);
        whole ? store_four(p.y, pair, first + at, four) : store_each(p, pair, first + at, four);
      }
    }
  }

 private:
  static constexpr int kPad = 4;  // spreads the pairs over the banks

  static __device__ void store_four(const GpuMatrix& y, int64_t row, int column, float4 v) {
    const int64_t at = row * y.stride + column;
    if (y.dtype == DType::F32) {
      *reinterpret_cast<float4*>(reinterpret_cast<float*>(y.data) + at) = v;
    } else if (y.dtype == DType::BF16) {
      const __nv_bfloat162 two[2] = {__floats2bfloat162_rn(v.x, v.y), __floats2bfloat162_rn(v.z, v.w)};
      *reinterpret_cast<uint2*>(reinterpret_cast<__nv_bfloat16*>(y.data) + at) = *reinterpret_cast<const uint2*>(two);
    } else {
      const __half2 two[2] = {__floats2half2_rn(within_half(v.x), within_half(v.y)),
                              __floats2half2_rn(within_half(v.z), within_half(v.w))};
      *reinterpret_cast<uint2*>(reinterpret_cast<__half*>(y.data) + at) = *reinterpret_cast<const uint2*>(two);
    }
  }

  static __device__ void store_each(const GroupedParams& p, int pair, int output, float4 v) {
    const float values[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4 && output + i < p.outputs; ++i) p.y.set(pair, output + i, values[i]);
  }

  float* data_;
  int width_;
};

}  // namespace millrace
