// Merges the sums of a block's warps at the end of a segment.
#pragma once

#include "kernels/attention/cuda/decode/sums.cuh"
#include "kernels/attention/cuda/rows.cuh"

namespace millrace {

template <class Config>
class WarpMerge {
  static constexpr int kDim = Config::kDim;
  static constexpr int kFours = kDim / 4;  // per row

 public:
  __device__ WarpMerge(const DecodeParams& p, float* space)
      : p_(p), o_(space), rows_(reinterpret_cast<float2*>(space + Config::kMergeFloats)) {}

  struct NoParts {
    __device__ void add_to(PairSum&, int, int) const {}
  };

  // Merges into `part`, or into the result if `part` is empty; `others` adds the sums of other blocks.
  template <class Others = NoParts>
  __device__ void merge(RowSums<kDim>& sums, const Segment& s, const PairPart& part, const Others& others = {}) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(sums.total[half]);
      if (lane % 4 == 0) rows_[warp * kTileRows + half * 8 + g] = {sums.largest[half], total};
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half * 8 >= s.rows) break;
      if (half * 8 + g < s.rows) write_warp(sums, half, warp, lane);
      __syncthreads();
      add_warps(s, half, part, others);
      __syncthreads();
    }
  }

  __device__ float* space() const { return o_; }
  // 16 free bytes after the merge buffers.
  __device__ void* behind() const { return rows_ + Config::kWarps * kTileRows; }

 private:
  __device__ float2 whole_row(int row) const {  // its largest score and its total over the warps
    float largest = kNoScore, total = 0;
#pragma unroll
    for (int w = 0; w < Config::kWarps; ++w) largest = fmaxf(largest, rows_[w * kTileRows + row].x);
#pragma unroll
    for (int w = 0; w < Config::kWarps; ++w) {
      const float2 part = rows_[w * kTileRows + row];
      total += part.y * exp2_fast(part.x - largest);
    }
    return {largest, total};
  }

  __device__ void write_warp(const RowSums<kDim>& sums, int half, int warp, int lane) {
    const int g = lane / 4, t = lane % 4;
    const float factor = exp2_fast(sums.largest[half] - whole_row(half * 8 + g).x);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      float* to = o_ + Config::merge_at(warp * Config::kMergeRows + g, n * 8 + t * 2);
      *reinterpret_cast<float2*>(to) = {sums.o[n][half * 2] * factor, sums.o[n][half * 2 + 1] * factor};
    }
  }

  template <class Others>
  __device__ void add_warps(const Segment& s, int half, const PairPart& part, const Others& others) {
    const int count = min(8, s.rows - half * 8) * kFours;
    for (int i = threadIdx.x; i < count; i += Config::kThreads) {
      const int row = i / kFours, column = i % kFours * 4;
      float4 sum = {};
#pragma unroll
      for (int w = 0; w < Config::kWarps; ++w) {
        const float* from = o_ + Config::merge_at(w * Config::kMergeRows + row, column);
        const float4 mine = *reinterpret_cast<const float4*>(from);
        sum.x += mine.x, sum.y += mine.y, sum.z += mine.z, sum.w += mine.w;
      }
      const float2 whole = whole_row(half * 8 + row);
      if (part.o == nullptr) {
        PairSum all{whole.x, whole.y, sum};
        others.add_to(all, half * 8 + row, column);
        store_result<kDim>(p_, s, half * 8 + row, column, all);
      } else {
        *reinterpret_cast<float4*>(part.o + (half * 8 + row) * kDim + column) = sum;
        if (column == 0) part.rows[half * 8 + row] = whole;
      }
    }
  }

  const DecodeParams& p_;
  float* o_;      // [warp][row][column]
  float2* rows_;  // [warp][row]: largest, total
};

}  // namespace millrace
