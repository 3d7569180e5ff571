// Quantized weights on Hopper for the few pairs that a group has at decode, read as one even stream.
//
// An item is a tile of 16 rows, in a gated layer one of gate and the same one of up, times a tile of pairs. Each block
// has a multiprocessor for itself and a contiguous share of all items, which its warps take in turns, each a whole one.
// A warp's stream of units runs ahead across the ends of items and tiles of pairs. x of all tiles of pairs of a block
// is staged at the start, as far as it fits: a barrier between two tiles of pairs would let most warps wait for those
// that have an item more.
#pragma once

#include "kernels/grouped_linear/cuda/item_stream.cuh"
#include "kernels/linear/cuda/quantized/mma.cuh"

namespace millrace {

// The pairs of the staged segments, in shared memory.
struct StagedPairs {
  int rows[kStreamMostPairs], pairs[kStreamMostPairs];  // of x and of y
  float weights[kStreamMostPairs];                      // 1 without `sum`

  // Those of segments[first] to segments[end - 1]: a warp each.
  template <int kWarps>
  __device__ __forceinline__ void fill(const GroupedParams& p, const StreamSegment* segments, int first, int end) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int s = first + warp_index(); s < end; s += kWarps) {
      const StreamSegment& segment = segments[s];
      if (lane >= segment.pairs.count) continue;
      const int pair = __ldcg(p.order + segment.pairs.first + lane), at = segment.pairs_at + lane;
      pairs[at] = pair;
      rows[at] = p.x_row(pair);
      weights[at] = p.sum ? __ldcg(p.pair_weights + pair) : 1;
    }
  }
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
  // `first`: of the item's pairs among the staged ones.
  __device__ __forceinline__ void store(const GroupedParams& p, const StagedPairs& of, int first, int live,
                                        float factor, const float (&sums)[kTiles][kGroups][4]) const {
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
      p.y.set(of.pairs[first + token], row, value * of.weights[first + token]);
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

// Stages x of segments[first] to segments[end - 1]; the warps divide the segments, then those of a segment its x.
template <DType kFormat, int kGroups, int kWarps>
__device__ __forceinline__ void stage_segments(const PackedStreamParams& f, const StreamSegment* segments, int first,
                                               int end, const StagedPairs& staged_pairs, uint8_t* x) {
  const int warp = warp_index(), together = min(end - first, kWarps), own = warp % together;
  for (int s = first + own; s < end; s += together) {
    const int* rows = staged_pairs.rows + segments[s].pairs_at;
    const int live = segments[s].pairs.count;
    const auto row_of = [&](int token) {
      return reinterpret_cast<const __nv_bfloat16*>(f.p.x) + rows[token] * f.p.x_stride;
    };
    StagedX<kFormat, kGroups>(x + segments[s].x_at, live, f.units)
        .fill(row_of, f.p.k, live, 0, f.units, warp / together, (kWarps - own + together - 1) / together);
  }
}

template <DType kFormat, int kGroups, int kTiles>
__global__ void __launch_bounds__(32 * kStreamWarps<kFormat, kTiles>, 1)
    grouped_packed_stream(const __grid_constant__ PackedStreamParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this kernel
  using Stream = ItemStream<kFormat, kTiles>;
  using X = StagedX<kFormat, kGroups>;
  constexpr int kTokens = 8 * kGroups, kWarps = kStreamWarps<kFormat, kTiles>;
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ alignas(8) uint64_t full[kWarps];
  __shared__ int32_t offsets[kStreamMostGroups + 1];
  __shared__ StreamSegment segments[kStreamMostSegments];
  __shared__ StagedPairs pairs;
  const GroupedParams& p = f.p;
  const int thread = static_cast<int>(threadIdx.x), warp = warp_index();
  if (thread == 0) {
    for (uint64_t& barrier : full) init_barrier(&barrier, 1);
    publish_barriers();
  }
  begin_grouped(p);
  for (int i = thread; i <= p.groups; i += 32 * kWarps) offsets[i] = __ldcg(p.offsets + i);
  __syncthreads();
  const StreamShare share(offsets, p.groups, kTokens, f.tiles);
  for (int i = warp; i < share.segments; i += kWarps) {
    const StreamSegment segment = share.segment(p, offsets, kTokens, f.tiles, i);
    if (thread % 32 == 0) segments[i] = segment;
  }
  __syncthreads();
  Stream stream(f, share, segments, shared + warp * Stream::kSlotBytes, full + warp);
  if (thread == 0) {
    place_segments(segments, share.segments, f.most_x_bytes, [&](int n) { return X::bytes(n, f.units); });
  }
  __syncthreads();
  uint8_t* const x = shared + kWarps * Stream::kSlotBytes;
  int item = warp;  // the warp's items are those of its stream
  for (int first = 0, end; first < share.segments; first = end) {
    end = end_of_round(segments, share.segments, first);
    if (first > 0) __syncthreads();  // all warps have left the round before
    pairs.fill<kWarps>(p, segments, first, end);
    if (first == 0) wait_for_input(p);
    __syncthreads();
    stage_segments<kFormat, kGroups, kWarps>(f, segments, first, end, pairs, x);
    __syncthreads();
    for (int s = first; item < segments[end - 1].end; item += kWarps) {
      while (item >= segments[s].end) ++s;
      const StreamSegment& segment = segments[s];
      const int live = segment.pairs.count;
      const ItemOutputs<kGroups, kTiles> outputs(p, segment.pairs.group, segment.first_tile + item - segment.begin);
      float sums[kTiles][kGroups][4] = {};
      multiply_item<kFormat, kGroups, kTiles>(stream, X(x + segment.x_at, live, f.units), f.units, live, sums);
      outputs.store(p, pairs, segment.pairs_at, live, Unit<kFormat>::kSumFactor, sums);
    }
  }
  if (share.segments == 0) wait_for_input(p);
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
