// Decode attention with one cluster of blocks per pair of sequence and KV head.
#pragma once

#include "kernels/attention/cuda/decode/cluster_end.cuh"
#include "kernels/attention/cuda/decode/merge.cuh"
#include "kernels/attention/cuda/decode/stream.cuh"

namespace millrace {

// The segment of a block of a cluster; rows = 0 if the sequence has no such tile. This code delays the first copy, so
// it avoids divisions.
__device__ inline Segment cluster_segment(const DecodeParams& p, int rank) {
  const int shift = 31 - __clz(p.ranks), place = static_cast<int>(blockIdx.x) >> shift;
  Segment s;
  s.sequence = static_cast<int>(blockIdx.y);
  s.slice = p.args.slices[s.sequence];
  s.kv_head = p.most_tiles == 1 ? place : place / p.most_tiles;
  s.first_row_of_tile = (place - s.kv_head * p.most_tiles) * kTileRows;
  s.rows = min(kTileRows, s.slice.rows * p.group - s.first_row_of_tile);
  const SequenceWork work = sequence_work(s.slice.rows, s.slice.past, p.args.window, p.kv_heads, p.group);
  s.begin = work.first_unit + (work.units * rank >> shift);
  s.end = work.first_unit + (work.units * (rank + 1) >> shift);
  return s;
}

// One cluster per pair, with its units divided evenly: no search, and no global memory between the blocks. For batches
// whose sequences are about equally long, and for small batches, where every microsecond before and after the stream
// counts.
template <class T, class Config, Softmax kSoftmax>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    decode_cluster(const __grid_constant__ DecodeParams p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  p.stamps.start();
  const DecodeSpace<Config> space(p, shared);
  if (!p.args.early || !Config::kLetsNextStartLate) allow_dependents();
  if (!p.args.early) wait_for_predecessors();
  const int rank = static_cast<int>(blockIdx.x) & (p.ranks - 1);
  const Segment segment = cluster_segment(p, rank);
  if (segment.rows <= 0) {
    wait_for_predecessors();
    return;
  }

  const bool alone = !Config::kWide && p.ranks == 1;
  WarpMerge<Config> warps(p, space.merge);
  ClusterEnd<Config> end(p, space.merge, warps.behind());
  const OnePiece walk(segment);
  UnitLoader<T, Config, OnePiece> loader(p, walk, space.stages);
  WarpStream<T, Config, OnePiece> stream{p, loader, space.stages, 0};
  const int issued = stream.start_early(p.args.early);
  // Placed here so that the next kernel's weight loads do not delay the tables, keys and values of this one.
  if (p.args.early && Config::kLetsNextStartLate) allow_dependents();
  if (!alone) end.expect_sums(segment, rank);
  WarpAttention<T, Config> attention(p, segment);
  const int thread = static_cast<int>(threadIdx.x);
  const RowPart<T, Config> part(p, segment, thread), next = part_behind(p, segment, part, thread + Config::kThreads);
  FreshRow<T, Config> fresh(p, segment);
  stream.start_after(issued);
  share_rows(p, segment, part, next, thread, space.queries);
  take_rows(p, segment, space, attention, fresh);
  if (!alone) end.allow_sums();
  RowSums<Config::kDim> sums;
  run_segment<kSoftmax>(stream, attention, fresh, walk, segment, sums);
  p.stamps.mark_first(kMultiplied);
  if constexpr (!Config::kWide) {
    if (alone) {
      warps.merge(sums, segment, {});
      p.stamps.mark_first(kStored);
      return;
    }
  }
  end.finish(sums, segment, shared, space.warp_bytes, rank);
  p.stamps.mark_first(kStored);
  static_assert(Config::kStages * 2 * Config::kUnitBytes >= kTileRows * (Config::kMergeStride * 4 + 8));
#endif
}

}  // namespace millrace
