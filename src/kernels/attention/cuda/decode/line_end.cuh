// End of a segment for blocks with ranges of the line: the last block of a pair to arrive adds up all parts.
#pragma once

#include "kernels/attention/cuda/decode/merge.cuh"

namespace millrace {

// The blocks whose ranges share a pair: `count` blocks from `first` on.
struct Contributors {
  int first = 0, count = 1;
};

template <class Config>
class LineEnd {
  static constexpr int kDim = Config::kDim;
  static constexpr int kFours = kDim / 4;  // per row

 public:
  __device__ LineEnd(const DecodeParams& p, float* space)
      : p_(p), warps_(p, space), last_arrived_(static_cast<int*>(warps_.behind())) {}

  // Writes the result, or this block's part of it to global memory.
  __device__ void finish(RowSums<kDim>& sums, const Segment& s, const Contributors& blocks) {
    PairPart part;
    if (blocks.count > 1) {
      const int64_t slot = static_cast<int64_t>(blockIdx.x) * 2 + (s.from_start ? 1 : 0);
      part = {p_.partials + slot * kTileRows * kDim, p_.summaries + slot * kTileRows};
    }
    warps_.merge(sums, s, part);
    if (blocks.count > 1) arrive(s, blocks);
  }

 private:
  // The last block to arrive finds all partial results of the pair, and resets the counter.
  __device__ void arrive(const Segment& s, const Contributors& blocks) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();  // for the whole block: the barrier before it orders the other threads' writes
      const int tile = s.first_row_of_tile / kTileRows;
      unsigned* counter =
          p_.counters + static_cast<int64_t>(s.sequence) * p_.pairs_per_sequence + tile * p_.kv_heads + s.kv_head;
      const unsigned others = static_cast<unsigned>(blocks.count - 1);
      *last_arrived_ = atomicInc(counter, others) == others;
      __threadfence();
    }
    __syncthreads();
    if (*last_arrived_ != 0) combine(s, blocks);
    __syncthreads();
  }

  // Each thread adds up four columns of a row; with few rows, groups of threads share the partial results.
  __device__ void combine(const Segment& s, const Contributors& blocks) {
    const int items = s.rows * kFours;
    const int groups = max(1, Config::kThreads / items);
    for (int first = 0; first < items; first += Config::kThreads) {
      const int item = groups > 1 ? threadIdx.x % items : first + threadIdx.x;
      const int group = groups > 1 ? threadIdx.x / items : 0;
      PairSum sum;
      if (item < items && group < groups) sum = add_partials(blocks, item / kFours, item % kFours, group, groups);
      if (groups > 1) share(sum, items, groups);
      if (item < items && group == 0) store_result<kDim>(p_, s, item / kFours, item % kFours * 4, sum);
    }
  }

  __device__ PairSum add_partials(const Contributors& blocks, int row, int four, int group, int groups) const {
    constexpr int kAtOnce = 8;
    PairSum sum;
    for (int c = group; c < blocks.count; c += groups * kAtOnce) {
      float2 rows[kAtOnce];
      float4 o[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = c + i * groups;
        rows[i] = {kNoScore, 0};
        o[i] = {};
        if (at < blocks.count) {
          const int64_t slot = static_cast<int64_t>(blocks.first + at) * 2 + (at == 0 ? 1 : 0);
          rows[i] = __ldcg(p_.summaries + slot * kTileRows + row);
          o[i] = __ldcg(reinterpret_cast<const float4*>(p_.partials + (slot * kTileRows + row) * kDim) + four);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) sum.add(rows[i].x, rows[i].y, o[i]);
    }
    return sum;
  }

  __device__ void share(PairSum& sum, int items, int groups) {
    PairSum* space = reinterpret_cast<PairSum*>(warps_.space());
    static_assert(sizeof(PairSum) * Config::kThreads <= Config::kMergeFloats * 4);
    __syncthreads();
    space[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < items) {
      for (int other = 1; other < groups; ++other) {
        const PairSum& part = space[threadIdx.x + other * items];
        sum.add(part.largest, part.total, part.o);
      }
    }
    __syncthreads();
  }

  const DecodeParams& p_;
  WarpMerge<Config> warps_;
  int* last_arrived_;
};

}  // namespace millrace
