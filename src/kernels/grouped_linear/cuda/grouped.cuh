// Parts that the grouped linear kernels share: parameters, the tile of a block, outputs.
#pragma once

#include <algorithm>

#include "base/rounding.h"
#include "kernels/activation/cuda/clamped_swiglu.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/launch.h"

namespace millrace {

// Waits for the kernel in front, then lets the next one start. All grouped kernels without `sum` use this order, which
// makes Routing::settled true for the kernel behind them: it starts when each block of this one has passed its wait or
// has ended. By then the router, the kernel in front or an older one, is complete and its writes are in L2. Kernels
// read a settled routing past L1 (__ldcg), which may hold lines of an older one.
__device__ __forceinline__ void wait_and_let_next_kernel_start() {
  wait_for_previous_kernel();
  let_next_kernel_start();
}

struct GroupedParams {
  const std::byte* weights;
  int64_t group_bytes;  // from the matrix of one group to the next
  const float* bias;    // [groups][n] or null
  const std::byte* x;
  int64_t x_stride;  // elements
  int n, k, groups;
  int half;     // rows of gate in front of those of up; 0: not gated
  int outputs;  // columns of a pair's result: n, or half if gated
  int per_row, pairs;
  bool sum;  // x has a row for each pair, and results are multiplied with the pair's weight
  const int32_t *chosen, *order, *offsets;
  int first_group;  // `chosen` counts groups from here on
  const float* pair_weights;
  bool settled;  // Routing::settled
  Activation activation;
  SwigluClamp clamp;  // of Activation::ClampedSwiglu
  GpuMatrix y;        // [pairs, outputs], or [rows, outputs] of a kernel that adds up the pairs itself

  // Group of a pair; -1: its matrix is elsewhere, and the pair is skipped.
  __device__ int group_of(int pair) const {
    const int group = __ldcg(chosen + pair) - first_group;
    return group >= 0 && group < groups ? group : -1;
  }
  __device__ int x_row(int pair) const { return sum ? pair : pair / per_row; }
  __device__ const std::byte* matrix(int group) const { return weights + group * group_bytes; }
};

// Begins a kernel. Between begin_grouped() and wait_for_input() it may read a settled routing and weights, and nothing
// else. Every block calls both, even if it has nothing to do: a grid that ends before the kernel in front would let its
// successors overtake that one.
__device__ __forceinline__ void begin_grouped(const GroupedParams& p) {
  p.settled ? let_next_kernel_start() : wait_and_let_next_kernel_start();
}
__device__ __forceinline__ void wait_for_input(const GroupedParams& p) {
  if (p.settled) wait_for_previous_kernel();
}

inline GroupedParams grouped_params(const GroupedLinearArgs& a) {
  const GroupedWeights& w = *a.weights;
  const int64_t half = a.gated ? w.n / 2 : 0;
  return {w.data.front(),
          static_cast<int64_t>(w.stride),
          a.bias,
          a.x.data,
          a.x.stride,
          static_cast<int>(w.n),
          static_cast<int>(w.k),
          static_cast<int>(w.groups),
          static_cast<int>(half),
          static_cast<int>(a.gated ? half : w.n),
          static_cast<int>(a.routing.per_row),
          static_cast<int>(a.routing.pairs()),
          a.sum,
          a.routing.chosen,
          a.routing.order,
          a.routing.offsets,
          static_cast<int>(a.routing.first),
          a.routing.weights,
          a.routing.settled,
          a.activation,
          a.clamp,
          a.y};
}

// The format whose units hold quantized weights of a file's format.
inline DType format_of_units(DType format) { return packed_linear_format(format, DType::BF16); }

__device__ inline float gated_value(const GroupedParams& p, float gate, float up) {
  switch (p.activation) {
    case Activation::Silu:
      return gate / (1 + __expf(-gate)) * up;
    case Activation::GeluTanh:
      return 0.5f * gate * (1 + tanhf(0.7978845608f * (gate + 0.044715f * gate * gate * gate))) * up;
    case Activation::GeluErf:
      return 0.5f * gate * erfcf(-gate * 0.70710678f) * up;
    case Activation::Relu:
      return fmaxf(gate, 0.0f) * up;
    case Activation::ReluSquared:
      return fmaxf(gate, 0.0f) * fmaxf(gate, 0.0f) * up;
    case Activation::ClampedSwiglu:
      return clamped_swiglu(gate, up, p.clamp);
  }
  return gate * up;
}

// Output `output` of a pair; `gate` is its only product if the layer is not gated.
__device__ __forceinline__ float pair_output(const GroupedParams& p, int pair, int group, int output, float gate,
                                             float up) {
  if (p.bias != nullptr) {
    const float* bias = p.bias + static_cast<int64_t>(group) * p.n + output;
    gate += bias[0];
    if (p.half > 0) up += bias[p.half];
  }
  const float value = p.half > 0 ? gated_value(p, gate, up) : gate;
  return p.sum ? value * p.pair_weights[pair] : value;
}

__device__ __forceinline__ void store_pair(const GroupedParams& p, int pair, int group, int output, float gate,
                                           float up) {
  p.y.set(pair, output, pair_output(p, pair, group, output, gate, up));
}

// Pairs order[first] .. order[first + count - 1], all of one group.
struct PairTile {
  int group, first, count;  // count 0: the block has nothing to do
};

// Tile `index` when the pairs of each group are cut into tiles of `size`. All lanes of a warp call it and get the same
// result. A launch has one block for each tile that the worst routing needs (most_tiles).
__device__ inline PairTile find_tile(const int32_t* offsets, int groups, int size, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32, each = (groups + 31) / 32;
  const int begin = min(groups, lane * each), end = min(groups, begin + each);
  int tiles = 0;  // of the lane's groups
  for (int g = begin; g < end; ++g) tiles += (offsets[g + 1] - offsets[g] + size - 1) / size;
  int until = tiles;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(~0u, until, step);
    if (lane >= step) until += below;
  }
  const unsigned behind = __ballot_sync(~0u, until > index);
  PairTile tile{0, 0, 0};
  if (behind == 0) return tile;
  const int owner = __ffs(behind) - 1;
  if (lane == owner) {
    int left = index - (until - tiles);
    for (int g = begin; g < end; ++g) {
      const int count = offsets[g + 1] - offsets[g], own = (count + size - 1) / size;
      if (left < own) {
        tile = {g, offsets[g] + left * size, min(size, count - left * size)};
        break;
      }
      left -= own;
    }
  }
  tile.group = __shfl_sync(~0u, tile.group, owner);
  tile.first = __shfl_sync(~0u, tile.first, owner);
  tile.count = __shfl_sync(~0u, tile.count, owner);
  return tile;
}

// Upper bound for the number of tiles, whatever the routing.
inline int64_t most_tiles(int64_t pairs, int64_t groups, int64_t size) {
  return pairs / size + std::min(pairs, groups);
}

}  // namespace millrace
