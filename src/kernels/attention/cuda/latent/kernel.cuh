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

// The loader has issued the segment's first units. If the unified maximum did not hold, the units are read again.
template <Softmax kSoftmax, class T, class Config>
__device__ void attend_segment(LatentTile<T, Config>& tile, LatentLoader<T, Config>& loader, LatentSpace<Config>& space,
                               const Segment& s) {
  if (tile.template run<kSoftmax>(loader, space)) return;
  loader.enter(s);
  for (int i = 0; i < Config::kStages - 1; ++i) loader.issue();
  tile.template run<Softmax::Online>(loader, space);
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
    attend_segment<kSoftmax>(tile, loader, space, s);
    if (s.whole) {
      tile.write();
    } else {
      const int64_t slot = static_cast<int64_t>(blockIdx.x) * 2 + (s.from_start ? 1 : 0);
      tile.write({p.decode.partials + slot * kTileRows * Config::kLatent, p.decode.summaries + slot * kTileRows},
                 Config::kLatent);
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

#if __CUDA_ARCH__ >= 900
__device__ inline uint32_t address_in(uint32_t own, int rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
  return address;
}
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Adds up the sums that the blocks of a cluster have left in their shared memory, each block a part of the columns.
template <class Config>
__device__ void add_cluster(const DecodeParams& p, const Segment& s, const PairPart& own, int rank) {
  constexpr int kFours = Config::kLatent / 4 / kLatentRanks;  // columns of this block
  const uint32_t sums = shared_address(own.o), rows = shared_address(own.rows);
  for (int item = static_cast<int>(threadIdx.x); item < s.rows * kFours; item += Config::kThreads) {
    const int row = item / kFours, column = (rank * kFours + item % kFours) * 4;
    float2 of_row[kLatentRanks];
    float4 o[kLatentRanks];
#pragma unroll
    for (int r = 0; r < kLatentRanks; ++r) {
      asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                   : "=f"(of_row[r].x), "=f"(of_row[r].y)
                   : "r"(address_in(rows + row * 8, r)));
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(o[r].x), "=f"(o[r].y), "=f"(o[r].z), "=f"(o[r].w)
                   : "r"(address_in(sums + (row * Config::kSumStride + column) * 4, r)));
    }
    PairSum sum;
#pragma unroll
    for (int r = 0; r < kLatentRanks; ++r) sum.add(of_row[r].x, of_row[r].y, o[r]);
    store_result<Config::kLatent>(p, s, row, column, sum);
  }
}
#endif

// One cluster of blocks per tile: blocks divide its positions without a search, and no second kernel adds up.
// Grid: (rank, tile, sequence).
template <class T, class Config, Softmax kSoftmax>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerSm)
    latent_cluster(const __grid_constant__ LatentParams p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  const DecodeParams& d = p.decode;
  allow_dependents();
  if (!d.args.early) wait_for_predecessors();
  Segment s;
  s.sequence = static_cast<int>(blockIdx.z);
  s.slice = d.args.slices[s.sequence];
  s.first_row_of_tile = static_cast<int>(blockIdx.y) * kTileRows;
  s.rows = min(kTileRows, s.slice.rows * d.group - s.first_row_of_tile);
  if (s.rows <= 0) return wait_for_predecessors();  // the whole cluster
  const int rank = static_cast<int>(blockIdx.x), units = (s.slice.past + s.slice.rows + kUnit - 1) / kUnit;
  s.begin = units * rank / kLatentRanks;
  s.end = units * (rank + 1) / kLatentRanks;
  LatentSpace<Config> space(shared);
  LatentLoader<T, Config> loader(d, space.slabs);
  loader.enter(s);
  int issued = d.args.early ? loader.issue_old() : 0;
  wait_for_predecessors();
  for (; issued < Config::kStages - 1; ++issued) loader.issue();
  LatentTile<T, Config> tile(d, s);
  attend_segment<kSoftmax>(tile, loader, space, s);
  const PairPart own{reinterpret_cast<float*>(shared),
                     reinterpret_cast<float2*>(shared + kTileRows * Config::kSumStride * sizeof(float))};
  __syncthreads();  // no warp reads its stages any more
  tile.write(own, Config::kSumStride);
  meet_cluster();
  add_cluster<Config>(d, s, own, rank);
  meet_cluster();  // a block that ends loses its shared memory
#endif
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

constexpr int kMostGroups = 4;

// Grid: (row of the tile, tile, sequence). A thread adds up four columns. With n groups of threads (up to
// kMostGroups) group i takes the parts i, i + n, ...
template <class Config>
__global__ void __launch_bounds__(kMostGroups* Config::kLatent / 4)
    add_latent_parts(const __grid_constant__ LatentParams p) {
  constexpr int kAtOnce = 8, kFours = Config::kLatent / 4;
  __shared__ PairSum sums[kMostGroups][kFours];
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
  const int four = static_cast<int>(threadIdx.x) % kFours, group = static_cast<int>(threadIdx.x) / kFours;
  const int groups = static_cast<int>(blockDim.x) / kFours;
  PairSum sum;
  for (int first = group; first < parts.count; first += groups * kAtOnce) {
    float2 rows[kAtOnce];
    float4 o[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int part = first + i * groups;
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
  if (groups > 1) {
    sums[group][four] = sum;
    __syncthreads();
    if (group > 0) return;
    for (int other = 1; other < groups; ++other) {
      const PairSum& part = sums[other][four];
      sum.add(part.largest, part.total, part.o);
    }
  }
  store_result<Config::kLatent>(p.decode, s, row, four * 4, sum);
}

}  // namespace millrace
