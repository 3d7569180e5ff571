// How decode attention's work is divided among the blocks of a CUDA launch: plain arithmetic, testable on the host.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "fresh_seed.h"
#include "kernels/attention/cuda/decode/even_cut.h"

namespace millrace {
namespace {

TEST(DecodeSplit, UnitsCoverWhatTheRowsSee) {
  EXPECT_EQ(sequence_work(0, 100, 0, 8, 4).length(), 0);
  const SequenceWork one = sequence_work(1, 1023, 0, 8, 4);
  EXPECT_EQ(one.first_unit, 0);
  EXPECT_EQ(one.units, 64);
  EXPECT_EQ(one.pairs, 8);
  const SequenceWork windowed =
      sequence_work(3, 1000, 100, 8, 4);  // the first row sees 901 .. 1000, the last up to 1002
  EXPECT_EQ(windowed.first_unit, 901 / 16);
  EXPECT_EQ(windowed.units, 1002 / 16 - 901 / 16 + 1);
  EXPECT_EQ(sequence_work(5, 0, 0, 2, 12).pairs, 2 * 4);  // 60 query rows share a KV head: four tiles
}

TEST(DecodeSplit, RangesPartTheLineAndKnowTheirOwners) {
  std::mt19937 random(fresh_seed());
  for (int round = 0; round < 200; ++round) {
    const int blocks = 1 + static_cast<int>(random() % 300), total = blocks + static_cast<int>(random() % 5000);
    const Split split{total, blocks, 0};
    EXPECT_EQ(split.begin(0), 0);
    EXPECT_EQ(split.begin(blocks), total);
    for (int block = 0; block < blocks; ++block) {
      ASSERT_LT(split.begin(block), split.begin(block + 1)) << total << " over " << blocks;
      ASSERT_EQ(split.owner(split.begin(block)), block) << total << " over " << blocks;
      ASSERT_EQ(split.owner(split.begin(block + 1) - 1), block) << total << " over " << blocks;
    }
  }
}

TEST(DecodeSplit, CutsTheLineOnlyWhereEveryBlockGetsAPart) {
  std::mt19937 random(fresh_seed());
  for (int round = 0; round < 500; ++round) {
    std::vector<SequenceWork> batch(1 + random() % 40);
    int total = 0;
    for (SequenceWork& work : batch) {
      work = sequence_work(static_cast<int>(random() % 3), static_cast<int>(random() % 2000), 0, 8, 4);
      total += work.length();
    }
    if (total == 0) continue;
    constexpr int kBlocks = 264, kWarps = 4;
    auto pieces = [&](int per) {
      int sum = 0;
      for (const SequenceWork& work : batch) sum += work.pieces(per);
      return sum;
    };
    const Split split = make_split(total, kBlocks, kWarps, pieces);
    if (split.per > 0) {
      EXPECT_LE(pieces(split.per), kBlocks);
    } else {
      EXPECT_GE(total, kBlocks);  // an empty range would never report, and its pair would never finish
    }
  }
}

// Walks every block's range: checks that the units of each pair are contiguous, and notes which block leaves partial
// results for which.
struct EvenParts {
  std::vector<int> units;                              // units of each pair that have an owner
  std::map<int, std::vector<int>> left_for, expected;  // blocks, by the block that finishes the pair

  EvenParts(const EvenCut& cut, int blocks, const std::vector<int>& lengths) : units(lengths.size(), 0) {
    for (int block = 0; block < blocks; ++block) walk(cut, block, lengths);
  }

 private:
  void walk(const EvenCut& cut, int block, const std::vector<int>& lengths) {
    const unsigned first = cut.block_begin(block);
    unsigned end = cut.block_begin(block + 1);
    for (unsigned pair = cut.pair_at(end - 1); end > first; end = cut.pair_begin(pair), --pair) {
      const unsigned begin = std::max(first, cut.pair_begin(pair));
      const int length = lengths[pair];
      const int from = cut.units_before(pair, length, begin), to = cut.units_before(pair, length, end);
      if (from == length) continue;
      EXPECT_EQ(from, units[pair]) << "pair " << pair << " block " << block;
      units[pair] = to;
      if (to < length) {
        left_for[cut.last_block(pair, length)].push_back(block);
      } else if (first > cut.pair_begin(pair)) {
        EXPECT_EQ(expected.count(block), 0u) << "two pairs of block " << block;
        for (int other = cut.first_block(pair); other < block; ++other) expected[block].push_back(other);
      }
    }
  }
};

TEST(DecodeSplit, EvenCutsHaveAllUnitsAndExpectThePartsThatAreLeft) {
  std::mt19937 random(fresh_seed());
  for (int round = 0; round < 400; ++round) {
    const int blocks = round % 3 == 0 ? 264 : 1 + static_cast<int>(random() % 300);
    const int pairs = 1 + static_cast<int>(random() % 500), change = static_cast<int>(random() % 20);
    const bool equal = random() % 2 == 0;
    std::vector<int> lengths(static_cast<size_t>(pairs), static_cast<int>(random() % 100));
    constexpr int kLengths[] = {0, 1, 2, 10, 64, 1000, 40000};
    for (int& length : lengths) length = equal ? length : kLengths[random() % std::size(kLengths)];
    ASSERT_TRUE(EvenCut::can_count(blocks, pairs, 40020));
    const EvenParts parts(EvenCut(blocks, pairs, change), blocks, lengths);
    ASSERT_EQ(parts.units, lengths) << pairs << " pairs over " << blocks << ", change " << change;
    ASSERT_EQ(parts.left_for, parts.expected) << pairs << " pairs over " << blocks << ", change " << change;
  }
}

TEST(DecodeSplit, EvenCutsAreTakenWhereClustersLeaveMultiprocessorsIdle) {
  constexpr double kLong = 1024 * 512, kShort = 512 * 512;  // bytes of 1024 and of 512 positions
  const auto is_even = [](int pairs, int ranks, double bytes) {
    const CutLosses losses{pairs, 132, 264, bytes};
    return losses.by_sharing(pairs > 264 ? 256 : 264) < losses.by_clusters(ranks);
  };
  EXPECT_TRUE(is_even(160, 1, kLong));  // two blocks on some multiprocessors, one on most
  EXPECT_TRUE(is_even(320, 1, kLong));  // a second round of 56 blocks
  EXPECT_TRUE(is_even(104, 2, 4 * kLong));
  EXPECT_FALSE(is_even(104, 2, kLong));  // three blocks would share a pair
  EXPECT_FALSE(is_even(160, 1, kShort));
  EXPECT_FALSE(is_even(256, 1, kLong));
  EXPECT_FALSE(is_even(512, 1, kLong));
  EXPECT_TRUE(is_even(40, 4, 4 * kLong));
  EXPECT_TRUE(is_even(88, 2, 2 * kLong));
  EXPECT_FALSE(is_even(48, 4, 4 * kLong));
  EXPECT_FALSE(is_even(288, 1, kShort));
  EXPECT_FALSE(is_even(136, 1, kShort));
  EXPECT_FALSE(is_even(8, 16, 16 * kLong));
  EXPECT_FALSE(is_even(2, 16, kLong));
  EXPECT_TRUE(is_even(2, 16, 256 * kLong));  // 32 multiprocessors cannot read as fast as all
}

}  // namespace
}  // namespace millrace
