// The division of decode attention's work among the blocks of a CUDA launch, which is plain arithmetic.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/attention/cuda/split.h"

namespace millrace {
namespace {

TEST(DecodeSplit, UnitsCoverWhatTheRowsSee) {
  EXPECT_EQ(sequence_work(0, 100, 0, 8, 4).length(), 0);
  const SequenceWork one = sequence_work(1, 1023, 0, 8, 4);
  EXPECT_EQ(one.first_unit, 0);
  EXPECT_EQ(one.units, 64);
  EXPECT_EQ(one.pairs, 8);
  const SequenceWork windowed = sequence_work(3, 1000, 100, 8, 4);  // the first row sees 901 .. 1000, the last up to 1002
  EXPECT_EQ(windowed.first_unit, 901 / 16);
  EXPECT_EQ(windowed.units, 1002 / 16 - 901 / 16 + 1);
  EXPECT_EQ(sequence_work(5, 0, 0, 2, 12).pairs, 2 * 4);  // 60 query rows share a KV head: four tiles
}

TEST(DecodeSplit, RangesPartTheLineAndKnowTheirOwners) {
  std::mt19937 random(std::random_device{}());
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
  std::mt19937 random(std::random_device{}());
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
      EXPECT_GE(total, kBlocks);  // an empty range would never report, and its pair never be finished
    }
  }
}

}  // namespace
}  // namespace millrace
