#include "kernels/attention/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <tuple>

#include "support.h"

namespace millrace {
namespace {

AttentionArgs random_batch(Random& random, std::vector<SequenceSlice>& slices) {
  AttentionArgs args;
  args.kv.kv_heads = 1 + random.below(8);
  args.heads = args.kv.kv_heads * (1 + random.below(10));
  args.window = random.below(2) == 0 ? 0 : 1 + random.below(300);
  int row = 0;
  for (int i = 0, n = 1 + random.below(12); i < n; ++i) {
    const int rows = random.below(2) == 0 ? 1 : 1 + random.below(300), past = random.below(3000);
    slices.push_back({row, rows, past, past + rows, {}});
    row += rows;
  }
  args.sequences = slices;
  return args;
}

// Exactly one tile covers each row under each KV head, contiguous pieces cover each tile's positions, and a chunk holds
// at most one tile that began before it and one that ends after it.
TEST(AttentionSchedule, CoversEverythingOnce) {
  for (int round = 0; round < 200; ++round) {
    Random random;
    SCOPED_TRACE(random.seed());
    std::vector<SequenceSlice> slices;
    const AttentionArgs args = random_batch(random, slices);
    const int threads = 1 + random.below(9);
    const AttentionSchedule schedule(args, 64, threads);
    ASSERT_GE(schedule.chunks(), 1);
    ASSERT_LE(schedule.chunks(), AttentionSchedule::max_chunks(threads));
    std::map<std::tuple<int, int, int>, int> covered;  // (first row of the sequence, KV head, row) -> next position
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      int began_before = 0, ends_after = 0;
      schedule.for_pieces(chunk, [&](const Piece& piece) {
        began_before += !piece.first();
        ends_after += !piece.last();
        ASSERT_LT(piece.begin, piece.end);
        for (int head = piece.tile.kv_head; head < piece.tile.kv_head + piece.tile.kv_heads; ++head) {
          for (int row = piece.tile.first; row < piece.tile.first + piece.tile.rows; ++row) {
            auto [at, fresh] = covered.try_emplace({piece.tile.sequence->first_row, head, row}, piece.tile.begin);
            ASSERT_EQ(at->second, piece.begin);
            at->second = piece.end;
            const int position = piece.tile.sequence->past + row;
            ASSERT_GT(piece.tile.end, position);
            ASSERT_LE(piece.tile.begin, args.window > 0 ? std::max(0, position - args.window + 1) : 0);
          }
        }
      });
      ASSERT_LE(began_before, 1);
      ASSERT_LE(ends_after, 1);
    }
    size_t expected = 0;
    for (const SequenceSlice& slice : slices) expected += static_cast<size_t>(slice.rows * args.kv.kv_heads);
    ASSERT_EQ(covered.size(), expected);
    for (const auto& [key, next] : covered) ASSERT_GT(next, 0);
  }
}

TEST(AttentionSchedule, SharesOneLongDecodeAmongAllThreads) {
  std::vector<SequenceSlice> slices = {{0, 1, 16383, 16384, {}}};
  AttentionArgs args;
  args.heads = 9;
  args.kv.kv_heads = 3;
  args.sequences = slices;
  for (int threads : {1, 2, 7, 16}) {
    const AttentionSchedule schedule(args, 64, threads);
    std::vector<int> positions(static_cast<size_t>(schedule.chunks()), 0);
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      schedule.for_pieces(
          chunk, [&](const Piece& piece) { positions[static_cast<size_t>(chunk)] += piece.end - piece.begin; });
    }
    EXPECT_EQ(schedule.chunks() % threads, 0);
    const auto [least, most] = std::minmax_element(positions.begin(), positions.end());
    EXPECT_LE(*most - *least, kKvTile);
    EXPECT_EQ(std::accumulate(positions.begin(), positions.end(), 0), 16384);
  }
}

TEST(AttentionSchedule, RunsTinyWorkOnOneThread) {
  std::vector<SequenceSlice> slices = {{0, 1, 5, 6, {}}};
  AttentionArgs args;
  args.heads = args.kv.kv_heads = 1;
  args.sequences = slices;
  EXPECT_EQ(AttentionSchedule(args, 64, 8).chunks(), 1);
}

}  // namespace
}  // namespace millrace
