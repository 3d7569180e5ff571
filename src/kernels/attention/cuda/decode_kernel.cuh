// The decode kernels: blocks that divide all work evenly, and clusters of them that share a pair each.
#pragma once

#include "kernels/attention/cuda/decode_merge.cuh"
#include "kernels/attention/cuda/decode_rows.cuh"

namespace millrace {

// A block's range of the line, and who shares its pairs.
struct BlockRange {
  Split split;
  int begin = 0, end = 0;
  Found from = {0, 0};
  int first_piece = 0, pieces = 0;  // of the pair, where pieces are whole

  __device__ Contributors contributors(const Segment& s) const {
    if (s.whole) return {};
    if (split.per > 0) return {first_piece, pieces};
    const int first = split.owner(s.pair_begin), last = split.owner(s.pair_begin + s.pair_units - 1);
    return {first, last - first + 1};
  }
};

__device__ inline BlockRange block_range(const DecodeParams& p, int warps) {
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const BatchWork batch(p);
  const auto length = [&](int i) { return batch.of(i).length(); };
  BlockRange range;
  const int total = sum_over(p.sequences, length);
  if (total == 0) return range;
  range.split = make_split(total, blocks, warps, [&](int per) {
    return sum_over(p.sequences, [&](int i) { return batch.of(i).pieces(per); });
  });
  const int per = range.split.per;
  if (per == 0) {
    range.begin = range.split.begin(block);
    range.end = range.split.begin(block + 1);
    if (range.begin < range.end) range.from = find_point(p.sequences, range.begin, length);
    return range;
  }
  const Found found = find_point(p.sequences, block, [&](int i) { return batch.of(i).pieces(per); });
  if (found.sequence == p.sequences) return range;
  const DeviceSlice s = p.args.slices[found.sequence];
  const SequenceWork work = sequence_work(s.rows, s.past, p.args.window, p.kv_heads, p.group);
  range.pieces = (work.units + per - 1) / per;
  const int pair = (block - found.begin) / range.pieces, piece = (block - found.begin) % range.pieces;
  range.first_piece = found.begin + pair * range.pieces;
  range.from = {found.sequence, 0};  // points count from the sequence's begin
  range.begin = pair * work.units + piece * per;
  range.end = min(range.begin + per, (pair + 1) * work.units);
  return range;
}

// One warp's arithmetic over its units of a segment, while its loader runs ahead.
template <class T, class Config, class Walk>
struct WarpStream {
  static constexpr int kDim = Config::kDim;
  const DecodeParams& p;
  UnitLoader<T, Config, Walk>& loader;
  uint32_t stages;
  int stage;

  __device__ void start(int issued = 0) {
    stage = 0;
    for (int i = issued; i < stage_count<Config>(p); ++i) loader.issue();
  }

  // The first start in two parts: what may be asked for before the kernels before this one are done, and the rest.
  __device__ int start_early(bool early) {
    const int issued = early ? loader.issue_old() : 0;
    p.stamps.mark_first(kAsked);
    return issued;
  }
  __device__ void start_after(int issued) {
    wait_for_predecessors();
    p.stamps.mark_first(kWaited);
    start(issued);
  }

  // Until the keys (1) or the values (2) of the oldest unit are there: each unit is two groups of copies.
  template <int kWhich>
  __device__ void wait_for_unit() const {
    if (p.deep) {
      wait_copies<4 * Config::kStages - kWhich>();
    } else {
      wait_copies<2 * Config::kStages - kWhich>();
    }
    __syncwarp();
  }

  // Returns whether all rows' maxima stayed in the range of the unified one; always true for the others.
  template <Softmax kSoftmax>
  __device__ bool run(WarpAttention<T, Config>& attention, const FreshRow<T, Config>& fresh, const Segment& s,
                      RowSums<kDim>& sums) {
    float seen[2] = {kNoScore, kNoScore};
    sums.clear();
    for (int unit = s.begin + static_cast<int>(threadIdx.x) / 32; unit < s.end; unit += Config::kWarps) {
      const uint32_t keys = stages + stage * 2 * Config::kUnitBytes;
      float score[2][4];
      wait_for_unit<1>();
      if (fresh.is_in(unit)) fresh.put_key(keys);
      attention.score_unit(keys, unit, score);
      if constexpr (kSoftmax == Softmax::Unified) {
#pragma unroll
        for (int i = 0; i < 4; ++i) seen[i / 2] = fmaxf(seen[i / 2], fmaxf(score[0][i], score[1][i]));
      } else {
        attention.template follow_maximum<kSoftmax>(score, sums);
      }
      wait_for_unit<2>();
      if (threadIdx.x % 32 == 0)
        p.stamps.mark(kLanded + min(28, (unit - s.begin) / Config::kWarps) + static_cast<int>(threadIdx.x) / 32 * 29);
      if (fresh.is_in(unit)) fresh.put_value(keys + Config::kUnitBytes);
      if constexpr (kSoftmax == Softmax::Unified) {
        attention.add_unit(keys + Config::kUnitBytes, score, attention.phi, sums);
      } else {
        attention.add_unit(keys + Config::kUnitBytes, score, sums.largest, sums);
      }
      __syncwarp();
      loader.issue();
      stage = stage + 1 == stage_count<Config>(p) ? 0 : stage + 1;
    }
    if constexpr (kSoftmax == Softmax::Unified) return settle(attention, seen, sums);
    return true;
  }

  __device__ static bool settle(const WarpAttention<T, Config>& attention, const float (&seen)[2],
                                RowSums<kDim>& sums) {
    bool inside = stayed_small(sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half >= attention.halves) break;
      const float largest = quad_max(seen[half]), phi = attention.phi[half];
      if (largest > kNoScore) {
        inside &= largest <= phi + UnifiedRange<T>::kAbove && largest >= phi - UnifiedRange<T>::kBelow;
        sums.largest[half] = phi;
      }
    }
    return __all_sync(~0u, inside);
  }

  // Weights far above one, though in their range, and values of bf16 that are large themselves may exceed f32 together,
  // here or where warps and blocks are added up.
  __device__ static bool stayed_small(const RowSums<kDim>& sums) {
    bool small = true;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) small &= fabsf(sums.o[n][i]) < 0x1p100f;  // false where it is no number
    }
    return small;
  }
};

// The arithmetic of a segment; where the unified maximum did not hold, this warp alone reads its part again.
template <Softmax kSoftmax, class T, class Config, class Walk>
__device__ void run_segment(WarpStream<T, Config, Walk>& stream, WarpAttention<T, Config>& attention,
                            const FreshRow<T, Config>& fresh, const Walk& walk, const Segment& segment,
                            RowSums<Config::kDim>& sums) {
  const bool in_range = stream.template run<kSoftmax>(attention, fresh, segment, sums);
  if constexpr (kSoftmax == Softmax::Unified) {
    if (!in_range) {
      wait_copies<0>();
      __syncwarp();
      stream.loader.restart(walk);
      stream.start();
      stream.template run<Softmax::Online>(attention, fresh, segment, sums);
    }
  }
}

// Shared memory of a block: the warps' stages, queries that stay there, the space where warps meet.
template <class Config>
struct DecodeSpace {
  int warp_bytes;
  uint32_t stages;
  uint32_t queries;
  float* merge;

  __device__ DecodeSpace(const DecodeParams& p, unsigned char* shared) {
    warp_bytes = p.held_stages * 2 * Config::kUnitBytes;
    stages = shared_address(shared) + static_cast<uint32_t>(threadIdx.x) / 32 * warp_bytes;
    queries = shared_address(shared + Config::kWarps * warp_bytes);
    merge = reinterpret_cast<float*>(shared + Config::kWarps * warp_bytes + Config::kQueryBytes);
  }
};

// Whole blocks, when rows are in shared memory: the queries for each warp, and the new key and value for the one that
// reads them.
template <class T, class Config>
__device__ FreshRow<T, Config> take_rows(const DecodeParams& p, const Segment& s, const DecodeSpace<Config>& space,
                                         WarpAttention<T, Config>& attention) {
  __syncthreads();
  attention.take_queries(s, space.queries);
  const FreshRow<T, Config> fresh(p, s, space.queries);
  if constexpr (!Config::kSharedQueries) __syncthreads();  // the space is free again
  return fresh;
}

template <class T, class Config>
__device__ FreshRow<T, Config> bring_rows(const DecodeParams& p, const Segment& s, const DecodeSpace<Config>& space,
                                          const RowPart<T, Config>& part, WarpAttention<T, Config>& attention) {
  share_rows(p, s, part, static_cast<int>(threadIdx.x), space.queries);
  return take_rows<T>(p, s, space, attention);
}

template <class T, class Config, Softmax kSoftmax>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    decode_attention(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) unsigned char shared[];
  p.stamps.start();
  const DecodeSpace<Config> space(p, shared);
  allow_dependents();
  if (!p.args.early) wait_for_predecessors();
  const BlockRange range = block_range(p, Config::kWarps);
  if (range.begin >= range.end) {
    wait_for_predecessors();
    return;
  }

  Walk walk(p, range.begin, range.end, range.from.sequence, range.from.begin);
  UnitLoader<T, Config, Walk> loader(p, walk, space.stages);
  WarpStream<T, Config, Walk> stream{p, loader, space.stages, 0};
  SegmentEnd<Config> merge(p, space.merge);
  stream.start_after(stream.start_early(p.args.early));
  while (!walk.done()) {
    const Segment segment = walk.segment();
    WarpAttention<T, Config> attention(p, segment);
    const RowPart<T, Config> part(p, segment, static_cast<int>(threadIdx.x));
    const FreshRow<T, Config> fresh = bring_rows(p, segment, space, part, attention);
    RowSums<Config::kDim> sums;
    run_segment<kSoftmax>(stream, attention, fresh, walk, segment, sums);
    p.stamps.mark_first(kMultiplied);
    merge.finish(sums, segment, range.contributors(segment));
    walk.next(segment);
  }
  p.stamps.mark_first(kStored);
}

// What a block of a cluster does; no rows: the sequence has no such tile. All of it stands in front of the first copy,
// so divisions, which take long, are few.
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

// One cluster of blocks for each pair, its units divided evenly: no search, no memory between the blocks. For batches
// whose sequences are about equally long, and for those so small that every microsecond before and after the stream
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
  SegmentEnd<Config> merge(p, space.merge);
  const OnePiece walk(segment);
  UnitLoader<T, Config, OnePiece> loader(p, walk, space.stages);
  WarpStream<T, Config, OnePiece> stream{p, loader, space.stages, 0};
  const int issued = stream.start_early(p.args.early);
  // The next kernel's weights then do not come between the tables, keys and values that all of this one waits for.
  if (p.args.early && Config::kLetsNextStartLate) allow_dependents();
  if (!alone) merge.expect_sums(segment, rank);
  WarpAttention<T, Config> attention(p, segment);
  const RowPart<T, Config> part(p, segment, static_cast<int>(threadIdx.x));
  stream.start_after(issued);
  const FreshRow<T, Config> fresh = bring_rows(p, segment, space, part, attention);
  if (!alone) merge.allow_sums();
  RowSums<Config::kDim> sums;
  run_segment<kSoftmax>(stream, attention, fresh, walk, segment, sums);
  p.stamps.mark_first(kMultiplied);
  if constexpr (!Config::kWide) {
    if (alone) {
      merge.finish(sums, segment, {});
      p.stamps.mark_first(kStored);
      return;
    }
  }
  merge.finish_cluster(sums, segment, shared, space.warp_bytes, rank);
  p.stamps.mark_first(kStored);
  static_assert(Config::kStages * 2 * Config::kUnitBytes >= kTileRows * (Config::kMergeStride * 4 + 8));
#endif
}

}  // namespace millrace
