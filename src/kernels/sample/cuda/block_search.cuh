// Searches by a whole block over numbers that each thread can compute: sums, positions in a running sum, and the
// threshold of the largest items.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int kThreads = 1024, kWarps = kThreads / 32;

// A bin's sum is kept in two 32-bit halves, each with hardware atomics. Up to this many items cannot overflow them.
inline constexpr int64_t kMostColumns = 500000;

__device__ inline unsigned long long warp_total(unsigned long long x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

class BlockSearch {
  static constexpr int kDigitBits = 8, kBins = 1 << kDigitBits;
  static constexpr int kCopies = 8;  // copies of each bin, to reduce contention between threads of a warp

 public:
  struct Space {
    unsigned low[kBins * kCopies], high[kBins * kCopies];
    unsigned long long parts[kWarps];
    int found;
    unsigned long long rest;
    uint32_t digit;
  };

  __device__ explicit BlockSearch(Space& space) : s_(space), thread_(static_cast<int>(threadIdx.x)) {}

  // Number of consecutive items, of `count`, that a warp takes.
  __device__ static int span_of(int count) { return (count + kThreads - 1) / kThreads * 32; }

  // Takes items in descending order of key until their sizes reach `left`, and returns the smallest key taken. On
  // return `left` is the part of the size that items with exactly this key must supply.
  template <class Key, class TakesPart, class Size>
  __device__ uint32_t find_border(int count, unsigned long long& left, Key key_of, TakesPart takes_part, Size size) {
    uint32_t border = 0, known = 0;
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      for (int i = thread_; i < kBins * kCopies; i += kThreads) s_.low[i] = s_.high[i] = 0;
      __syncthreads();
      for (int i = thread_; i < count; i += kThreads) {
        if (!takes_part(i)) continue;
        const uint32_t key = key_of(i);
        if ((key & known) != border) continue;
        const unsigned long long amount = size(i);
        const unsigned bin = (key >> shift) % kBins * kCopies + unsigned(thread_) % kCopies;
        atomicAdd(&s_.low[bin], static_cast<unsigned>(amount & 0xffff));
        if (amount >> 16 != 0) atomicAdd(&s_.high[bin], static_cast<unsigned>(amount >> 16));
      }
      __syncthreads();
      if (thread_ < 32) find_digit(left);
      __syncthreads();
      border |= s_.digit << shift;
      known |= (kBins - 1u) << shift;
      left = s_.rest;
      __syncthreads();
    }
    return border;
  }

  template <class Size>
  __device__ unsigned long long total_of(int count, Size size) {
    unsigned long long sum = 0;
#pragma unroll 4
    for (int i = thread_; i < count; i += kThreads) sum += size(i);
    sum = warp_total(sum);
    if (thread_ % 32 == 0) s_.parts[thread_ / 32] = sum;
    __syncthreads();
    sum = warp_total(s_.parts[thread_ % kWarps]);
    __syncthreads();
    return sum;
  }

  // First index whose running sum of sizes exceeds `target`, or `otherwise` if there is none. Each warp has a range of
  // consecutive items; the warp whose range contains the index scans it.
  template <class Size>
  __device__ int locate(int count, unsigned long long target, Size size, int otherwise) {
    const int warp = thread_ / 32, lane = thread_ % 32, begin = warp * span_of(count),
              end = min(begin + span_of(count), count);
    unsigned long long sum = 0;
#pragma unroll 4
    for (int i = begin + lane; i < end; i += 32) sum += size(i);
    sum = warp_total(sum);
    if (lane == 0) s_.parts[warp] = sum;
    if (thread_ == 0) s_.found = otherwise;
    __syncthreads();
    unsigned long long before = 0;
    for (int w = 0; w < warp; ++w) before += s_.parts[w];
    if (target >= before && target - before < sum) {
      for (int first = begin; first < end; first += 32) {
        const int i = first + lane;
        const unsigned long long mine = i < end ? size(i) : 0;
        unsigned long long upto = mine;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          const unsigned long long other = __shfl_up_sync(~0u, upto, step);
          if (lane >= step) upto += other;
        }
        const unsigned hit = __ballot_sync(~0u, before + upto > target);
        if (hit != 0) {
          if (lane == 0) s_.found = first + __ffs(static_cast<int>(hit)) - 1;
          break;
        }
        before += __shfl_sync(~0u, upto, 31);
      }
    }
    __syncthreads();
    const int found = s_.found;
    __syncthreads();
    return found;
  }

 private:
  // Executed by one warp: the digit at which the sums, from the largest digit down, reach `left`; else the lowest digit
  // with a nonempty bin.
  __device__ void find_digit(unsigned long long left) {
    constexpr int kEach = kBins / 32;
    unsigned long long sums[kEach], mine = 0;
    const int highest = kBins - 1 - thread_ * kEach;  // lane 0 holds the largest digits
    for (int d = 0; d < kEach; ++d) {
      sums[d] = 0;
      for (int c = 0; c < kCopies; ++c) {
        const int at = (highest - d) * kCopies + c;
        sums[d] += (static_cast<unsigned long long>(s_.high[at]) << 16) + s_.low[at];
      }
      mine += sums[d];
    }
    unsigned long long upto = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const unsigned long long other = __shfl_up_sync(~0u, upto, step);
      if (thread_ >= step) upto += other;
    }
    const unsigned reach = __ballot_sync(~0u, upto >= left), some = __ballot_sync(~0u, mine > 0);
    const int owner = reach != 0 ? __ffs(static_cast<int>(reach)) - 1 : 31 - __clz(static_cast<int>(some));
    if (thread_ != owner) return;
    unsigned long long before = upto - mine;
    for (int d = 0; d < kEach; ++d) {
      if (sums[d] == 0) continue;
      s_.digit = static_cast<uint32_t>(highest - d);
      s_.rest = left - min(before, left);
      before += sums[d];
      if (before >= left) return;
    }
  }

  Space& s_;
  const int thread_;
};

}  // namespace millrace
