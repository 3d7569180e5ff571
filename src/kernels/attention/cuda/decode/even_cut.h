// Splits all pairs of a decode step evenly among persistent blocks, without reading the lengths.
//
// The pairs (sequence, KV head, tile of query rows) lie on a line. Each pair has as many points as there are blocks,
// and block b owns the points [b * pairs, (b + 1) * pairs). The points of a pair represent its units plus some virtual
// units for the cost of changing to another pair: blocks with virtual units get fewer real ones.
#pragma once

#include <algorithm>

#include "kernels/attention/cuda/split.h"

namespace millrace {

// Division by a number that the host knows; correct for dividends below 2^32 / by.
struct Divisor {
  unsigned by = 1, factor = 0;

  Divisor() = default;
  explicit Divisor(unsigned divisor) : by(divisor), factor(divisor > 1 ? ~0u / divisor + 1 : 0) {}
  MR_DEVICE unsigned of(unsigned x) const {
    return factor == 0 ? x : static_cast<unsigned>(static_cast<uint64_t>(x) * factor >> 32);
  }
};

struct EvenCut {
  Divisor by_blocks, by_pairs;
  int change = 0;  // units

  EvenCut() = default;
  EvenCut(int blocks, int pairs, int change_units)
      : by_blocks(static_cast<unsigned>(blocks)), by_pairs(static_cast<unsigned>(pairs)), change(change_units) {}
  // Whether the divisions are exact for pairs of up to `units` units.
  static bool can_count(int64_t blocks, int64_t pairs, int64_t units) {
    constexpr int64_t kRange = int64_t{1} << 32;
    return units * blocks * blocks < kRange && pairs * blocks * std::max(pairs, blocks) < kRange;
  }

  MR_DEVICE unsigned block_begin(int block) const { return static_cast<unsigned>(block) * by_pairs.by; }
  MR_DEVICE unsigned pair_begin(unsigned pair) const { return pair * by_blocks.by; }
  MR_DEVICE unsigned pair_at(unsigned point) const { return by_blocks.of(point); }

  // Number of a pair's units before a point of the line; the point must not precede the pair.
  MR_DEVICE int units_before(unsigned pair, int units, unsigned point) const {
    const unsigned all = static_cast<unsigned>(units + change) * (point - pair_begin(pair));
    const int before = static_cast<int>(by_blocks.of(all));
    return before < units ? before : units;
  }
  // The blocks that own a pair's first point and its last unit. Blocks before the latter own no virtual units of the
  // pair.
  MR_DEVICE int first_block(unsigned pair) const { return static_cast<int>(by_pairs.of(pair_begin(pair))); }
  MR_DEVICE int last_block(unsigned pair, int units) const {
    const unsigned all = static_cast<unsigned>(units + change), points = static_cast<unsigned>(units) * by_blocks.by;
    return static_cast<int>(by_pairs.of(pair_begin(pair) + (points + all - 1) / all - 1));
  }
};

// What a multiprocessor can read alone, in units of its share of the memory's bandwidth (H200: 57 of 34 GB/s).
constexpr double kFastestSm = 1.7;

// Loss of a split in bytes that a multiprocessor could have read meanwhile, measured on an H200
// (docs/lab/h200-attention.md).
struct CutLosses {
  int pairs = 0, multiprocessors = 1;
  int places = 1;         // blocks that run at once
  double pair_bytes = 0;  // of keys and values

  // One cluster per pair: the excess of the fullest multiprocessor over the mean, or the idle slots of the last round.
  // Only part of it is lost: the remaining blocks get more bandwidth, and rounds overlap.
  double by_clusters(int ranks) const {
    constexpr double kLost = 0.3;
    const int blocks = pairs * ranks;
    const double each = pair_bytes / ranks * kLost;
    if (blocks <= multiprocessors) {
      const double all = pair_bytes * pairs;
      return std::max(0.0, all / (kFastestSm * blocks) - all / multiprocessors);
    }
    if (blocks <= places) {
      const int fullest = (blocks + multiprocessors - 1) / multiprocessors;
      return (fullest - double(blocks) / multiprocessors) * each;
    }
    const int rounds = (blocks + places - 1) / places;
    return (rounds - double(blocks) / places) / rounds * places / multiprocessors * each;
  }
  // Even split: changes between pairs, and sums that are combined through memory, one after the other.
  double by_sharing(int blocks) const { return 66e3 + 7e3 * blocks / pairs; }
};

}  // namespace millrace
