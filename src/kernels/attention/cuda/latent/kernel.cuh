// The kernels of latent attention: one attends, one adds up the parts of tiles that several blocks shared.
#pragma once

#include "kernels/attention/cuda/latent/tile.cuh"

namespace millrace {

// A tile whose block attends to all of its positions. Later tiles attend to more and go first.
__device__ inline Segment whole_tile(const DecodeParams& p) {
  const int index = static_cast<int>(gridDim.x) - 1 - static_cast<int>(blockIdx.x);
  const auto tiles = [&](int i) { return (max(p.args.slices[i].rows, 0) * p.group + kTileRows - 1) / kTileRows; };
  const Found found = find_point(p.sequences, index, tiles);
  Segment s;
  if (found.sequence == p.sequences) return s;
  s.sequence = found.sequence;
  s.slice = p.args.slices[found.sequence];
  s.first_row_of_tile = (index - found.begin) * kTileRows;
  s.rows = min(kTileRows, s.slice.rows * p.group - s.first_row_of_tile);
  s.end = (s.slice.past + (s.first_row_of_tile + s.rows - 1) / p.group) / kUnit + 1;
  s.from_start = s.whole = true;
  return s;
}

template <class T, class Config, Softmax kSoftmax, class Walk>
__device__ void attend_latent(const LatentParams& p, Walk walk) {
  extern __shared__ __align__(128) unsigned char shared[];
  LatentSpace<Config> space(shared);
  LatentLoader<T, Config> loader(p.decode, space.slabs);
  bool first = true;
  while (!walk.done()) {
    const Segment s = walk.segment();
    loader.enter(s);
    int issued = 0;
    if (first) {
      if (p.decode.args.early) issued = loader.issue_old();
      wait_for_predecessors();
      first = false;
    }
    for (; issued < Config::kStages - 1; ++issued) loader.issue();
    LatentTile<T, Config> tile(p.decode, s);
    if (!tile.template run<kSoftmax>(loader, space)) {
      loader.enter(s);
      for (int i = 0; i < Config::kStages - 1; ++i) loader.issue();
      tile.template run<Softmax::Online>(loader, space);
    }
    if (s.whole) {
      tile.write();
    } else {
      const int64_t slot = static_cast<int64_t>(blockIdx.x) * 2 + (s.from_start ? 1 : 0);
      tile.write({p.decode.partials + slot * kTileRows * Config::kLatent, p.decode.summaries + slot * kTileRows});
    }
    walk.next(s);
  }
}

template <class T, class Config, Softmax kSoftmax>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    latent_attention(const __grid_constant__ LatentParams p) {
  allow_dependents();
  if (!p.decode.args.early) wait_for_predecessors();
  if (p.whole) {
    const OnePiece walk(whole_tile(p.decode));
    if (walk.done()) return wait_for_predecessors();
    return attend_latent<T, Config, kSoftmax>(p, walk);
  }
  const BlockRange range = block_range(p.decode, p.least_units);
  if (range.begin >= range.end) return wait_for_predecessors();
  const Walk walk(p.decode, range.begin, range.end, range.from.sequence, range.from.begin);
  attend_latent<T, Config, kSoftmax>(p, walk);
}

// The blocks that share a tile, found as block_range() finds them.
__device__ inline Contributors parts_of(const LatentParams& p, int sequence, int tile) {
  const BatchWork batch(p.decode);
  const auto length = [&](int i) { return batch.of(i).length(); };
  const auto pieces = [&](int per, int count) {
    return sum_over(count, [&](int i) { return batch.of(i).pieces(per); });
  };
  const int all = p.decode.sequences, total = sum_over(all, length);
  const Split split = make_split(total, p.blocks, p.least_units, [&](int per) { return pieces(per, all); });
  const DeviceSlice s = p.decode.args.slices[sequence];
  const SequenceWork work = sequence_work(s.rows, s.past, 0, 1, p.decode.group);
  if (tile >= work.pairs) return {0, 0};
  if (split.per > 0) {
    const int each = (work.units + split.per - 1) / split.per;
    return {pieces(split.per, sequence) + tile * each, each};
  }
  const int begin = sum_over(sequence, length) + tile * work.units;
  const int first = split.owner(begin), last = split.owner(begin + work.units - 1);
  return {first, last - first + 1};
}

// Grid: (row of the tile, tile, sequence). A thread adds up four columns, in the order of the positions.
template <class Config>
__global__ void __launch_bounds__(Config::kLatent / 4) add_latent_parts(const __grid_constant__ LatentParams p) {
  allow_dependents();
  if (!p.decode.args.early) wait_for_predecessors();
  const int row = static_cast<int>(blockIdx.x), sequence = static_cast<int>(blockIdx.z);
  Segment s;
  s.sequence = sequence;
  s.slice = p.decode.args.slices[sequence];
  s.first_row_of_tile = static_cast<int>(blockIdx.y) * kTileRows;
  s.rows = min(kTileRows, s.slice.rows * p.decode.group - s.first_row_of_tile);
  const Contributors parts = parts_of(p, sequence, static_cast<int>(blockIdx.y));
  wait_for_predecessors();
  if (parts.count < 2 || row >= s.rows) return;
  constexpr int kAtOnce = 8;
  const int four = static_cast<int>(threadIdx.x);
  PairSum sum;
  for (int first = 0; first < parts.count; first += kAtOnce) {
    float2 rows[kAtOnce];
    float4 o[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int part = first + i;
      rows[i] = {kNoScore, 0};
      o[i] = {};
      if (part >= parts.count) continue;
      const int64_t at = (static_cast<int64_t>(parts.first + part) * 2 + (part == 0 ? 1 : 0)) * kTileRows + row;
      rows[i] = __ldcg(p.decode.summaries + at);
      o[i] = __ldcg(reinterpret_cast<const float4*>(p.decode.partials + at * Config::kLatent) + four);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum.add(rows[i].x, rows[i].y, o[i]);
  }
  store_result<Config::kLatent>(p.decode, s, row, four * 4, sum);
}

}  // namespace millrace
