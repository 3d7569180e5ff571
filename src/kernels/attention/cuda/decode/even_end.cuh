// End of a segment for persistent blocks that share all pairs evenly: a block leaves its part for the block that
// finishes the pair.
#pragma once

#include "kernels/attention/cuda/decode/merge.cuh"

namespace millrace {

// A block's part of a shared pair. Either the block leaves it for block `to`, or it finishes the pair and adds the
// parts of `count` blocks from `first` on.
struct PairShare {
  int to = -1, first = 0, count = 0;
};

template <class Config>
class EvenEnd {
  static constexpr int kDim = Config::kDim;
  static constexpr int kFours = kDim / 4;  // per row

 public:
  __device__ EvenEnd(const DecodeParams& p, float* space) : p_(p), warps_(p, space) {}

  // Each block leaves at most one part.
  __device__ void finish(RowSums<kDim>& sums, const Segment& s, const PairShare& share) {
    PairPart part;
    if (share.to >= 0) part = part_of(static_cast<int>(blockIdx.x));
    OtherParts others(*this, s, share);
    warps_.merge(sums, s, part, others);
    if (threadIdx.x != 0) return;
    if (share.count > 0) p_.counters[blockIdx.x] = 0;  // all threads of the block have read it
    if (share.to >= 0) {
      __threadfence();  // for the whole block, which has synchronized
      atomicAdd(p_.counters + share.to, 1);
    }
  }

 private:
  __device__ PairPart part_of(int block) const {
    const int64_t slot = static_cast<int64_t>(block) * 2;
    return {p_.partials + slot * kTileRows * kDim, p_.summaries + slot * kTileRows};
  }

  // The parts that other blocks left for this block. Those of a thread's first four columns are requested before the
  // block merges its own sums.
  class OtherParts {
   public:
    __device__ OtherParts(const EvenEnd& end, const Segment& s, const PairShare& share) : end_(end), share_(share) {
      if (share.count == 0) return;
      const unsigned* counter = end.p_.counters + blockIdx.x;
      unsigned seen = 0;
      while (seen < static_cast<unsigned>(share.count)) {
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
      }
      const int row = static_cast<int>(threadIdx.x) / kFours;
      if (row < s.rows) first_ = sum_of(row, static_cast<int>(threadIdx.x) % kFours * 4);
    }
    __device__ void add_to(PairSum& sum, int row, int column) const {
      if (share_.count == 0) return;
      const bool is_first = row * kFours + column / 4 == static_cast<int>(threadIdx.x);
      const PairSum other = is_first ? first_ : sum_of(row, column);
      sum.add(other.largest, other.total, other.o);
    }

   private:
    __device__ PairSum sum_of(int row, int column) const {
      PairSum sum;
#pragma unroll 1
      for (int i = 0; i < share_.count; ++i) {
        const PairPart part = end_.part_of(share_.first + i);
        const float2 whole = __ldcg(part.rows + row);
        sum.add(whole.x, whole.y, __ldcg(reinterpret_cast<const float4*>(part.o + row * kDim + column)));
      }
      return sum;
    }

    const EvenEnd& end_;
    const PairShare& share_;
    PairSum first_;
  };

  const DecodeParams& p_;
  WarpMerge<Config> warps_;
};

}  // namespace millrace
