// The decode kernel and its table entry for one head size.
#pragma once

#include "kernels/attention/cuda/decode_entry.h"
#include "kernels/attention/cuda/decode_merge.cuh"

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
  const auto length = of_work(p, [](const SequenceWork& w) { return w.length(); });
  BlockRange range;
  const int total = sum_over_slices(p.args.slices, p.sequences, length);
  if (total == 0) return range;
  range.split = make_split(total, blocks, warps, [&](int per) {
    return sum_over_slices(p.args.slices, p.sequences, of_work(p, [per](const SequenceWork& w) { return w.pieces(per); }));
  });
  const int per = range.split.per;
  if (per == 0) {
    range.begin = range.split.begin(block);
    range.end = range.split.begin(block + 1);
    if (range.begin < range.end) range.from = find_slice(p.args.slices, p.sequences, range.begin, length);
    return range;
  }
  const Found found = find_slice(p.args.slices, p.sequences, block,
                                 of_work(p, [per](const SequenceWork& w) { return w.pieces(per); }));
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
template <class T, int kDim>
struct WarpStream {
  using Config = DecodeConfig<kDim>;
  UnitLoader<T, kDim>& loader;
  uint32_t stages;
  int stage;

  __device__ void start() {
    stage = 0;
#pragma unroll
    for (int i = 0; i < Config::kStages; ++i) loader.issue();
  }

  // Returns whether all rows' maxima stayed in the range of the unified one; always true for the others.
  template <Softmax kSoftmax>
  __device__ bool run(const WarpAttention<T, kDim>& attention, const Segment& s, RowSums<kDim>& sums) {
    float seen[2] = {kNoScore, kNoScore};
    sums.clear();
    for (int unit = s.begin + static_cast<int>(threadIdx.x) / 32; unit < s.end; unit += Config::kWarps) {
      const uint32_t keys = stages + stage * 2 * Config::kUnitBytes;
      float score[2][4];
      wait_copies<2 * Config::kStages - 1>();
      __syncwarp();
      attention.score_unit(keys, unit, score);
      if constexpr (kSoftmax == Softmax::Unified) {
#pragma unroll
        for (int i = 0; i < 4; ++i) seen[i / 2] = fmaxf(seen[i / 2], fmaxf(score[0][i], score[1][i]));
      } else {
        attention.template follow_maximum<kSoftmax>(score, sums);
      }
      wait_copies<2 * Config::kStages - 2>();
      __syncwarp();
      if constexpr (kSoftmax == Softmax::Unified) {
        attention.add_unit(keys + Config::kUnitBytes, score, attention.phi, sums);
      } else {
        attention.add_unit(keys + Config::kUnitBytes, score, sums.largest, sums);
      }
      __syncwarp();
      loader.issue();
      stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    }
    if constexpr (kSoftmax == Softmax::Unified) return settle(attention, seen, sums);
    return true;
  }

  __device__ static bool settle(const WarpAttention<T, kDim>& attention, const float (&seen)[2], RowSums<kDim>& sums) {
    bool inside = true;
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
};

template <class T, int kDim, Softmax kSoftmax>
__global__ void __launch_bounds__(DecodeConfig<kDim>::kThreads, DecodeConfig<kDim>::kBlocksPerSm)
    decode_attention(const __grid_constant__ DecodeParams p) {
  using Config = DecodeConfig<kDim>;
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kWarpBytes = Config::kStages * 2 * Config::kUnitBytes;
  const uint32_t stages = shared_address(shared) + static_cast<uint32_t>(threadIdx.x) / 32 * kWarpBytes;

  wait_for_predecessors();
  allow_dependents();
  const BlockRange range = block_range(p, Config::kWarps);
  if (range.begin >= range.end) return;

  Walk walk(p, range.begin, range.end, range.from.sequence, range.from.begin);
  UnitLoader<T, kDim> loader(p, walk, stages);
  WarpStream<T, kDim> stream{loader, stages, 0};
  SegmentEnd<kDim> merge(p, reinterpret_cast<float*>(shared + Config::kWarps * kWarpBytes));
  stream.start();
  while (!walk.done()) {
    const Segment segment = walk.segment();
    const WarpAttention<T, kDim> attention(p, segment);
    RowSums<kDim> sums;
    const bool in_range = stream.template run<kSoftmax>(attention, segment, sums);
    if constexpr (kSoftmax == Softmax::Unified) {
      if (!in_range) {  // this warp alone reads its part again
        wait_copies<0>();
        __syncwarp();
        loader.restart(walk);
        stream.start();
        stream.template run<Softmax::Online>(attention, segment, sums);
      }
    }
    merge.finish(sums, segment, range.contributors(segment));
    walk.next(segment);
  }
}

template <class T, int kDim>
DecodeEntry decode_entry_of(Softmax softmax) {
  using Config = DecodeConfig<kDim>;
  DecodeEntry entry{nullptr, Config::kThreads, Config::kSharedBytes, kDim};
  if (softmax == Softmax::Online) entry.kernel = decode_attention<T, kDim, Softmax::Online>;
  if (softmax == Softmax::Lazy) entry.kernel = decode_attention<T, kDim, Softmax::Lazy>;
  if (softmax == Softmax::Unified) entry.kernel = decode_attention<T, kDim, Softmax::Unified>;
  return entry;
}

}  // namespace millrace
