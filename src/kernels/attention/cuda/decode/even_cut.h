// How all pairs of a decode step are cut evenly among blocks that stay, without a look at the lengths.
//
// The pairs (a sequence, a KV head, a tile of query rows) lie on a line on which each is as long as there are blocks,
// and block b has the points [b * pairs, (b + 1) * pairs). A pair's points are its units and some behind them that
// stand for what changing to another pair costs a block: who has those has fewer units.
#pragma once

#include <algorithm>

#include "kernels/attention/cuda/split.h"

namespace millrace {

// Division by a number that the host knows: right for numbers below 2^32 / by.
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
  // Whether divisions are right for pairs of up to so many units.
  static bool can_count(int64_t blocks, int64_t pairs, int64_t units) {
    constexpr int64_t kRange = int64_t{1} << 32;
    return units * blocks * blocks < kRange && pairs * blocks * std::max(pairs, blocks) < kRange;
  }

  MR_DEVICE unsigned block_begin(int block) const { return static_cast<unsigned>(block) * by_pairs.by; }
  MR_DEVICE unsigned pair_begin(unsigned pair) const { return pair * by_blocks.by; }
  MR_DEVICE unsigned pair_at(unsigned point) const { return by_blocks.of(point); }

  // How many of a pair's units lie before a point of the line that is not before the pair.
  MR_DEVICE int units_before(unsigned pair, int units, unsigned point) const {
    const unsigned all = static_cast<unsigned>(units + change) * (point - pair_begin(pair));
    const int before = static_cast<int>(by_blocks.of(all));
    return before < units ? before : units;
  }
  // The blocks that have a pair's first point and its last unit. Those before the latter have none behind it.
  MR_DEVICE int first_block(unsigned pair) const { return static_cast<int>(by_pairs.of(pair_begin(pair))); }
  MR_DEVICE int last_block(unsigned pair, int units) const {
    const unsigned all = static_cast<unsigned>(units + change), points = static_cast<unsigned>(units) * by_blocks.by;
    return static_cast<int>(by_pairs.of(pair_begin(pair) + (points + all - 1) / all - 1));
  }
};

// What a cut loses: bytes that a multiprocessor could have read meanwhile, as measured on an H200 (docs/h200-notes.md).
struct CutLosses {
  int pairs = 0, multiprocessors = 1;
  int places = 1;         // for blocks at once
  double pair_bytes = 0;  // of keys and values

  // A cluster for each pair: what the fullest multiprocessor has above the mean, or the last round of blocks leaves
  // empty. Not all of it: who is left gets more of the bandwidth, and rounds run into each other.
  double by_clusters(int ranks) const {
    constexpr double kLost = 0.3;
    const int blocks = pairs * ranks;
    const double each = pair_bytes / ranks * kLost;
    if (blocks <= multiprocessors) return 0;  // those that have one read as fast as the memory can
    if (blocks <= places) {
      const int fullest = (blocks + multiprocessors - 1) / multiprocessors;
      return (fullest - double(blocks) / multiprocessors) * each;
    }
    const int rounds = (blocks + places - 1) / places;
    return (rounds - double(blocks) / places) / rounds * places / multiprocessors * each;
  }
  // An even cut: changes from pair to pair, and sums that meet in memory, one behind the other.
  double by_sharing(int blocks) const { return 66e3 + 7e3 * blocks / pairs; }
};

}  // namespace millrace
