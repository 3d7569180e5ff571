// Reads several strips of packed weights in turn: several memory streams get more bandwidth than one. Included inside a
// target region, after the formats.
#pragma once

#include "kernels/linear/rows8/tiles-inl.h"
#include "kernels/linear/rows8/tuned.h"

// Several streams only for one row of x, which is bound by memory. With more rows the accumulators need the registers.
template <class Format>
constexpr bool kNarrow = sizeof(typename Format::Block) <= 5 * 32;  // at most five bits per element, with scales
template <class Format>
constexpr int kDecodeStreams = Format::kGroups > 1 ? (Format::kMins ? MR_K_MIN_STREAMS : MR_K_STREAMS)
                               : kNarrow<Format>   ? MR_NIBBLE_STREAMS
                                                   : MR_SMALL_STREAMS;
template <class Format, int m>
constexpr int kStreams = m > 1 ? 1 : kDecodeStreams<Format>;

// Prefetch distance in bytes for small blocks and for K-blocks, and the target cache: 3 is L1, 2 is L2.
struct Ahead {
  int64_t small, k;
  int cache;
};
constexpr Ahead kAhead{MR_SMALL_AHEAD, MR_K_AHEAD, MR_AHEAD_CACHE};

// Iterates over the blocks of `streams` adjacent strips and prefetches: the blocks that follow and, past the end of the
// strips, those of the next strips.
template <class Format, int streams>
class StripStreams {
 public:
  using Block = typename Format::Block;

  MR_INLINE StripStreams(const LinearWeights& weights, int64_t strip)
      : blocks_(weights.k / (32 * Format::kGroups)),
        block_(reinterpret_cast<const Block*>(weights.data) + strip * blocks_),
        end_(block_ + blocks_) {}

  MR_INLINE bool more() const { return block_ != end_; }
  MR_INLINE bool more_than(int64_t count) const { return end_ - block_ > count; }
  MR_INLINE const Block& block(int stream) const { return block_[stream * blocks_]; }
  MR_INLINE void next(int64_t count = 1) { block_ += count; }

  // Prefetches part `g` of a block, which has as many parts as groups, so that the requests spread evenly; or `count`
  // blocks at once.
  template <Ahead ahead = kAhead, int count = 1>
  MR_INLINE void prefetch(int g = 0) const {
    constexpr int64_t kBytes = Format::kGroups == 1 ? ahead.small : ahead.k;
    constexpr int64_t kBlocks = (kBytes + int64_t{sizeof(Block)} - 1) / int64_t{sizeof(Block)};
    const bool within = end_ - block_ > kBlocks;
    const Block* next = block_ + kBlocks + (within ? 0 : (streams - 1) * blocks_);
    unrolled<streams>([&](auto stream) MR_INLINE {
      const auto* bytes = reinterpret_cast<const char*>(next + stream * blocks_) + g * kPart;
      unrolled<kLines<count>>([&](auto line) MR_INLINE { __builtin_prefetch(bytes + 64 * line, 0, ahead.cache); });
    });
  }

 private:
  template <int count>
  static constexpr int kLines = (count * sizeof(Block) / Format::kGroups + 63) / 64;  // cache lines of `count` parts
  static constexpr int kPart = kLines<1> * 64;

  int64_t blocks_;
  const Block *block_, *end_;
};

// Calls visit(first strip, std::integral_constant<int, streams>()) over the strips of a piece.
template <int streams, class Visit>
MR_INLINE inline void for_streams(int64_t begin, int64_t end, Visit visit) {
  for (; begin + streams <= end; begin += streams) visit(begin, std::integral_constant<int, streams>());
  for (; begin < end; ++begin) visit(begin, std::integral_constant<int, 1>());
}
