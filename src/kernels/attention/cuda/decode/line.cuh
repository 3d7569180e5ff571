// Decode attention whose blocks divide all work evenly, by the true lengths.
#pragma once

#include "kernels/attention/cuda/decode/line_end.cuh"
#include "kernels/attention/cuda/decode/stream.cuh"

namespace millrace {

// A block's range of the line, and the pieces of its pair.
struct BlockRange {
  Split split;
  int begin = 0, end = 0;
  Found from = {0, 0};
  int first_piece = 0, pieces = 0;  // of the pair, if pieces are whole

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
  range.from = {found.sequence, 0};  // points count from the start of the sequence
  range.begin = pair * work.units + piece * per;
  range.end = min(range.begin + per, (pair + 1) * work.units);
  return range;
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
  LineEnd<Config> end(p, space.merge);
  stream.start_after(stream.start_early(p.args.early));
  while (!walk.done()) {
    const Segment segment = walk.segment();
    WarpAttention<T, Config> attention(p, segment);
    FreshRow<T, Config> fresh(p, segment);
    share_rows<T, Config>(p, segment, static_cast<int>(threadIdx.x), space.queries);
    take_rows(p, segment, space, attention, fresh);
    RowSums<Config::kDim> sums;
    run_segment<kSoftmax>(stream, attention, fresh, walk, segment, sums);
    p.stamps.mark_first(kMultiplied);
    end.finish(sums, segment, range.contributors(segment));
    walk.next(segment);
  }
  p.stamps.mark_first(kStored);
}

}  // namespace millrace
