// End of a segment for blocks with ranges of the line: the last block of a pair to arrive adds up all parts. A hundred
// parts would take one block longer than their keys and values take all blocks: the last block of each group of parts
// then adds up those, and the last of these blocks adds up the groups.
#pragma once

#include "kernels/attention/cuda/decode/merge.cuh"

namespace millrace {

// The blocks whose ranges share a pair: `count` blocks from `first` on. Each has one part of the pair.
struct Contributors {
  int first = 0, count = 1;

  // Only a pair's first part begins at the start of its pair; a block may have such a part and another pair's last one.
  __device__ int slot(int part) const { return (first + part) * 2 + (part == 0 ? 1 : 0); }
};

template <class Config>
class LineEnd {
  static constexpr int kDim = Config::kDim;
  static constexpr int kPieces = kDim / 8;  // of four columns, in each half of a row
  static constexpr int kGroup = 12;         // parts
  // Parts that a thread requests at once. More would cost blocks of many threads their place on a multiprocessor.
  static constexpr int kAtOnce = Config::kThreads > 64 ? kGroup / 3 : kGroup;

 public:
  __device__ LineEnd(const DecodeParams& p, float* space)
      : p_(p), warps_(p, space), last_arrived_(static_cast<int*>(warps_.behind())) {}

  // Writes the result, or this block's part of it to global memory.
  __device__ void finish(RowSums<kDim>& sums, const Segment& s, const Contributors& blocks) {
    const int own = static_cast<int>(blockIdx.x) - blocks.first;
    PairPart part;
    if (blocks.count > 1) part = part_at(blocks.slot(own), p_.summaries);
    warps_.merge(sums, s, part);
    if (blocks.count == 1) return;
    arrive(s, blocks, own);
    __syncthreads();
  }

 private:
  // Parts that are added up together: `count` of them, every `step`-th from `begin` on.
  struct Round {
    int begin, count, step;
    const float2* rows;  // where their rows' largest scores and totals are
    unsigned* counter;   // of the blocks that have arrived
    PairPart to;         // empty: the result
  };

  __device__ PairPart part_at(int slot, float2* rows) const {
    return {p_.partials + slot * kTileRows * kDim, rows + slot * kTileRows};
  }

  // The sums of a group take the place of its first part, except for its rows' largest scores and totals: other threads
  // still read those.
  __device__ Round group_round(const Contributors& blocks, int own) const {
    const int begin = own / kGroup * kGroup, slot = blocks.slot(begin);
    return {begin,        min(kGroup, blocks.count - begin), 1,
            p_.summaries, p_.group_counters + slot,          part_at(slot, p_.group_summaries)};
  }
  __device__ Round pair_round(const Segment& s, const Contributors& blocks) const {
    const int tile = s.first_row_of_tile / kTileRows;
    unsigned* counter = p_.counters + s.sequence * p_.pairs_per_sequence + tile * p_.kv_heads + s.kv_head;
    if (blocks.count <= kGroup) return {0, blocks.count, 1, p_.summaries, counter, {}};
    return {0, (blocks.count + kGroup - 1) / kGroup, kGroup, p_.group_summaries, counter, {}};
  }

  // A loop: in its second round a block finds the instructions in its cache.
  __device__ void arrive(const Segment& s, const Contributors& blocks, int own) {
#pragma unroll 1
    for (bool of_pair = blocks.count <= kGroup;; of_pair = true) {
      const Round round = of_pair ? pair_round(s, blocks) : group_round(blocks, own);
      if (!is_last(round.counter, round.count)) return;
      combine(s, blocks, round);
      if (of_pair) return;
    }
  }

  // Whether this block is the last of `count` to arrive. It then sees what the others have written, and has reset the
  // counter.
  __device__ bool is_last(unsigned* counter, int count) const {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();  // for the whole block: the barrier before it orders the other threads' writes
      const auto others = static_cast<unsigned>(count - 1);
      *last_arrived_ = atomicInc(counter, others) == others;
      __threadfence();
    }
    __syncthreads();
    return *last_arrived_ != 0;
  }

  // Four columns in each half of a row, relative to its largest score so far.
  struct Halves {
    float largest = kNoScore, total = 0;
    float4 o[2] = {};

    __device__ void add(const Halves& x) {
      const float top = fmaxf(largest, x.largest);
      const float mine = exp2_fast(largest - top), theirs = exp2_fast(x.largest - top);
      largest = top;
      total = total * mine + x.total * theirs;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        o[half] = {o[half].x * mine + x.o[half].x * theirs, o[half].y * mine + x.o[half].y * theirs,
                   o[half].z * mine + x.o[half].z * theirs, o[half].w * mine + x.o[half].w * theirs};
      }
    }
  };

  // With few rows, teams of threads share the parts.
  __device__ void combine(const Segment& s, const Contributors& blocks, const Round& round) {
    const int items = s.rows * kPieces;
    const int teams = max(1, Config::kThreads / items);
#pragma unroll 1
    for (int first = 0; first < items; first += Config::kThreads) {
      const int item = teams > 1 ? threadIdx.x % items : first + threadIdx.x;
      const int team = teams > 1 ? threadIdx.x / items : 0;
      const int row = item / kPieces, column = item % kPieces * 4;
      Halves sum;
      if (item < items && team < teams) sum = add_parts(blocks, round, row, column, team, teams);
      if (teams > 1) share(sum, items, teams);
      if (item < items && team == 0) store(s, round.to, row, column, sum);
    }
  }

  __device__ Halves add_parts(const Contributors& blocks, const Round& round, int row, int column, int team,
                              int teams) const {
    const float* sums = p_.partials + row * kDim + column;
    const float2* summaries = round.rows + row;
    Halves sum;
#pragma unroll 1
    for (int first = team; first < round.count; first += teams * kAtOnce) {
      float2 rows[kAtOnce];
      float4 o[kAtOnce][2];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = first + i * teams;
        rows[i] = {kNoScore, 0};
        o[i][0] = o[i][1] = {};
        if (at < round.count) {
          const int64_t slot = blocks.slot(round.begin + at * round.step);
          const float* from = sums + slot * (kTileRows * kDim);
          rows[i] = __ldcg(summaries + slot * kTileRows);
          o[i][0] = __ldcg(reinterpret_cast<const float4*>(from));
          o[i][1] = __ldcg(reinterpret_cast<const float4*>(from + kDim / 2));
        }
      }
      Halves together;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) together.largest = fmaxf(together.largest, rows[i].x);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float factor = exp2_fast(rows[i].x - together.largest);
        together.total += rows[i].y * factor;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float4& to = together.o[half];
          to.x += o[i][half].x * factor, to.y += o[i][half].y * factor;
          to.z += o[i][half].z * factor, to.w += o[i][half].w * factor;
        }
      }
      sum.add(together);
    }
    return sum;
  }

  __device__ void share(Halves& sum, int items, int teams) {
    Halves* space = reinterpret_cast<Halves*>(warps_.space());
    static_assert(sizeof(Halves) * Config::kThreads <= Config::kMergeFloats * 4);
    __syncthreads();
    space[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < items) {
      for (int other = 1; other < teams; ++other) sum.add(space[threadIdx.x + other * items]);
    }
    __syncthreads();
  }

  __device__ void store(const Segment& s, const PairPart& to, int row, int column, const Halves& sum) const {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int at = column + half * (kDim / 2);
      const float4 o = half == 0 ? sum.o[0] : sum.o[1];
      if (to.o == nullptr) {
        store_result<kDim>(p_, s, row, at, {sum.largest, sum.total, o});
      } else {
        *reinterpret_cast<float4*>(to.o + row * kDim + at) = o;
        if (at == 0) to.rows[row] = {sum.largest, sum.total};
      }
    }
  }

  const DecodeParams& p_;
  WarpMerge<Config> warps_;
  int* last_arrived_;
};

}  // namespace millrace
