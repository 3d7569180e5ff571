// Quantized weights on Hopper for the few pairs that a group has at decode, read as one even stream.
//
// An item is a tile of 16 rows, in a gated layer one of gate and the same one of up, times a tile of pairs. Each block
// has a multiprocessor for itself and a contiguous share of all items. Each of its 16 warps takes every 16th item
// whole, and streams the items' units through a ring of its own that runs ahead across the ends of items and tiles of
// pairs. x of a tile of pairs is staged once per block. So nothing but the start waits for memory.
#pragma once

#include "kernels/grouped_linear/cuda/item_stream.cuh"
#include "kernels/linear/cuda/quantized/mma.cuh"

namespace millrace {

// What the outputs of a tile of pairs need.
struct StreamPairs {
  const int *rows, *pairs;  // of x and of y
  const float* weights;     // 1 without `sum`
};

// A lane's outputs of an item: rows g and g + 8 for the pairs of put_fragment().
template <int kGroups, int kTiles>
struct ItemOutputs {
  int first_row;
  float bias[kTiles][2] = {};  // requested before the products

  __device__ __forceinline__ ItemOutputs(const GroupedParams& p, int group, int tile)
      : first_row(tile * kTileRows + static_cast<int>(threadIdx.x) % 32 / 4) {
    if (p.bias == nullptr) return;
    const float* from = p.bias + static_cast<int64_t>(group) * p.n;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      bias[i / 2][i % 2] = from[i / 2 * p.half + min(first_row + i % 2 * 8, p.outputs - 1)];
    }
  }

  // The loop is not unrolled, since an activation has many instructions: the sums pass through local memory.
  __device__ __forceinline__ void store(const GroupedParams& p, const StreamPairs& of, int live, float factor,
                                        const float (&sums)[kTiles][kGroups][4]) const {
    float values[kTiles][4 * kGroups];
#pragma unroll
    for (int i = 0; i < kTiles * 4 * kGroups; ++i) {
      const int tile = i / (4 * kGroups), at = i % (4 * kGroups);
      values[tile][at] = fmaf(sums[tile][at / 4][at % 4], factor, bias[tile][at % 4 / 2]);
    }
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (int i = 0; i < 4 * kGroups; ++i) {
      const int token = i / 4 * 8 + lane % 4 * 2 + i % 2, row = first_row + i % 4 / 2 * 8;
      if (token >= live || row >= p.outputs) continue;
      const float value = kTiles == 2 ? gated_value(p, values[0][i], values[kTiles - 1][i]) : values[0][i];
      p.y.set(of.pairs[token], row, value * of.weights[token]);
    }
  }
};

// sums += the products of the stream's next units, which make an item.
template <DType kFormat, int kGroups, int kTiles>
__device__ __forceinline__ void multiply_item(ItemStream<kFormat, kTiles>& stream,
                                              const StagedX<kFormat, kGroups>& staged, int units, int live,
                                              float (&sums)[kTiles][kGroups][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const __nv_bfloat16* x[kGroups];  // missing pairs repeat the last one; their sums are not stored
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    x[group] = staged.x + min(group * 8 + lane / 4, live - 1) * staged.stride + 8 * (lane % 4);
  }
  const float* starts = staged.sums + lane % 4 * 4;
#pragma unroll 1
  for (int i = 0; i < units; ++i) {
    UnitFragment<kFormat> unit[kTiles];
    const uint8_t* from = stream.wait();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      unit[tile].load_bits(from + tile * Unit<kFormat>::kSize, lane);
      unit[tile].meta.load_shared_scales(from + tile * Unit<kFormat>::kSize, lane);
    }
    stream.refill();
#pragma unroll
    for (int block = 0; block < 8; ++block) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {  // tiles share the loads of x
        multiply_block<kFormat, kGroups>(unit[tile], block, x, starts, sums[tile]);
      }
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) x[group] += kUnitColumns;
    starts += 8 * staged.kBlockSums;
  }
}

template <DType kFormat, int kGroups, int kTiles>
__global__ void __launch_bounds__(kStreamThreads, 1)
    grouped_packed_stream(const __grid_constant__ PackedStreamParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this kernel
  using Stream = ItemStream<kFormat, kTiles>;
  constexpr int kTokens = 8 * kGroups;
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ alignas(8) uint64_t full[kRingWarps * kStreamMostSlots];
  __shared__ int32_t offsets[kStreamMostGroups + 1];
  __shared__ StreamSegment segments[kStreamMostSegments];
  __shared__ int rows[kTokens], pairs[kTokens];
  __shared__ float weights[kTokens];
  const GroupedParams& p = f.p;
  const int thread = static_cast<int>(threadIdx.x), warp = warp_index();
  if (thread == 0) {
    for (uint64_t& barrier : full) init_barrier(&barrier, 1);
    publish_barriers();
  }
  begin_grouped(p);
  for (int i = thread; i <= p.groups; i += kStreamThreads) offsets[i] = __ldcg(p.offsets + i);
  __syncthreads();
  const StreamShare share(offsets, p.groups, kTokens, f.tiles);
  for (int i = warp; i < share.segments; i += kRingWarps) {
    const StreamSegment segment = share.segment(p, offsets, kTokens, f.tiles, i);
    if (thread % 32 == 0) segments[i] = segment;
  }
  __syncthreads();
  const int ring_bytes = f.slots * Stream::kSlotBytes;
  Stream stream(f, share, segments, shared + warp * ring_bytes, full + warp * kStreamMostSlots);
  StagedX<kFormat, kGroups> staged(shared + kRingWarps * ring_bytes, f.tokens, f.units);
  wait_for_input(p);
  for (int s = 0; s < share.segments; ++s) {
    const StreamSegment& segment = segments[s];
    const int live = segment.pairs.count;
    if (s > 0) __syncthreads();  // all warps have left the segment before
    if (thread < live) {
      const int pair = p.order[segment.pairs.first + thread];
      pairs[thread] = pair;
      rows[thread] = p.x_row(pair);
      weights[thread] = p.sum ? p.pair_weights[pair] : 1;
    }
    __syncthreads();
    const auto row_of = [&](int token) {
      return reinterpret_cast<const __nv_bfloat16*>(p.x) + rows[token] * p.x_stride;
    };
    staged.template fill<kRingWarps>(row_of, p.k, live, 0, f.units);
    __syncthreads();
    // The warp's items are those of its stream: `warp` and every 16th behind it.
    const int skipped = ((warp - segment.begin) % kRingWarps + kRingWarps) % kRingWarps;
    for (int item = segment.begin + skipped; item < segment.end; item += kRingWarps) {
      const ItemOutputs<kGroups, kTiles> outputs(p, segment.pairs.group, segment.first_tile + item - segment.begin);
      float sums[kTiles][kGroups][4] = {};
      multiply_item<kFormat, kGroups, kTiles>(stream, staged, f.units, live, sums);
      outputs.store(p, {rows, pairs, weights}, live, Unit<kFormat>::kSumFactor, sums);
    }
  }
#endif
}

template <DType kFormat, int kGroups>
cudaError_t launch_packed_stream(const PackedStreamParams& params, LaunchShape shape, const CudaStep& step) {
  return params.p.half > 0 ? launch_kernel(grouped_packed_stream<kFormat, kGroups, 2>, shape, step, params)
                           : launch_kernel(grouped_packed_stream<kFormat, kGroups, 1>, shape, step, params);
}

// hopper_*.cu instantiate the formats, so that they compile in parallel.
#define MILLRACE_GROUPED_STREAM(PREFIX, F)                                                              \
  PREFIX template cudaError_t launch_packed_stream<DType::F, 1>(const PackedStreamParams&, LaunchShape, \
                                                                const CudaStep&);                       \
  PREFIX template cudaError_t launch_packed_stream<DType::F, 2>(const PackedStreamParams&, LaunchShape, \
                                                                const CudaStep&);

}  // namespace millrace
