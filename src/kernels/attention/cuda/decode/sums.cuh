// Partial sums of a pair's rows, and how they become the result.
#pragma once

#include "kernels/attention/cuda/decode/walk.cuh"
#include "kernels/attention/cuda/rows.cuh"

namespace millrace {

// Four columns of a row, relative to its largest score so far.
struct PairSum {
  float largest = kNoScore, total = 0;
  float4 o = {};

  __device__ void add(float other_largest, float other_total, float4 other) {
    const float top = fmaxf(largest, other_largest);
    const float mine = exp2_fast(largest - top), theirs = exp2_fast(other_largest - top);
    largest = top;
    total = total * mine + other_total * theirs;
    o = {o.x * mine + other.x * theirs, o.y * mine + other.y * theirs, o.z * mine + other.z * theirs,
         o.w * mine + other.w * theirs};
  }

  // Reduces over `count` consecutive lanes, a power of two.
  __device__ void add_neighbours(int count) {
    float top = largest;
    for (int step = 1; step < count; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    const float factor = exp2_fast(largest - top);
    largest = top;
    total *= factor;
    o = {o.x * factor, o.y * factor, o.z * factor, o.w * factor};
    for (int step = 1; step < count; step *= 2) {
      total += __shfl_xor_sync(~0u, total, step);
      o.x += __shfl_xor_sync(~0u, o.x, step);
      o.y += __shfl_xor_sync(~0u, o.y, step);
      o.z += __shfl_xor_sync(~0u, o.z, step);
      o.w += __shfl_xor_sync(~0u, o.w, step);
    }
  }
};

// Destination of partial sums: [kTileRows][head_dim], and the rows' largest scores and totals. Empty: the sums are the
// final result.
struct PairPart {
  float* o = nullptr;
  float2* rows = nullptr;
};

__device__ inline void store4(const CudaMatrix& to, int64_t index, float4 v) {
  if (to.dtype == DType::F32) {
    reinterpret_cast<float4*>(to.data)[index / 4] = v;
  } else if (to.dtype == DType::F16) {
    reinterpret_cast<uint2*>(to.data)[index / 4] = {pack<__half>(v.x, v.y), pack<__half>(v.z, v.w)};
  } else {
    reinterpret_cast<uint2*>(to.data)[index / 4] = {pack<__nv_bfloat16>(v.x, v.y), pack<__nv_bfloat16>(v.z, v.w)};
  }
}

template <int kDim>
__device__ void store_result(const DecodeParams& p, const Segment& s, int tile_row, int column, const PairSum& sum) {
  const int index = s.first_row_of_tile + tile_row;
  const RowAndHead at(p, s, index);
  const int64_t row = s.slice.first_row + at.row, head = s.kv_head * p.group + at.head;
  const float factor = 1 / with_sink(p.args, head, sum.total, sum.largest);
  store4(p.args.out, row * p.args.out.stride + head * kDim + column,
         {sum.o.x * factor, sum.o.y * factor, sum.o.z * factor, sum.o.w * factor});
}

}  // namespace millrace
