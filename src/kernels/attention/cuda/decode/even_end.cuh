// The end of a segment for blocks that stay and share all pairs evenly: a part is left for the block that ends the
// pair.
#pragma once

#include "kernels/attention/cuda/decode/merge.cuh"

namespace millrace {

// A block's part of a pair that blocks share evenly: it is left for block `to`, or it ends the pair, and the parts of
// `count` blocks from `first` on are added.
struct PairShare {
  int to = -1, first = 0, count = 0;
};

template <class Config>
class EvenEnd {
  static constexpr int kDim = Config::kDim;
  static constexpr int kFours = kDim / 4;  // of a row

 public:
  __device__ EvenEnd(const DecodeParams& p, float* space) : p_(p), warps_(p, space) {}

  // Each block leaves one part at most.
  __device__ void finish(RowSums<kDim>& sums, const Segment& s, const PairShare& share) {
    PairPart part;
    if (share.to >= 0) part = part_of(static_cast<int>(blockIdx.x));
    OtherParts others(*this, s, share);
    warps_.merge(sums, s, part, others);
    if (threadIdx.x != 0) return;
    if (share.count > 0) p_.counters[blockIdx.x] = 0;  // all of the block have seen it
    if (share.to >= 0) {
      __threadfence();  // for all of the block, which has met
      atomicAdd(p_.counters + share.to, 1);
    }
  }

 private:
  __device__ PairPart part_of(int block) const {
    const int64_t slot = static_cast<int64_t>(block) * 2;
    return {p_.partials + slot * kTileRows * kDim, p_.summaries + slot * kTileRows};
  }

  // The parts of a pair that others have left for this block. Those of a thread's first four columns are asked for
  // before the block's own sums meet.
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
