#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cache/state_cache.h"

namespace millrace {
namespace {

TEST(BlockPool, GivesEachPageOnceAndCountsReferences) {
  BlockPool pool(5);
  std::set<int32_t> taken;
  while (const auto block = pool.take()) taken.insert(*block);
  EXPECT_EQ(taken.size(), 5u);
  EXPECT_EQ(pool.free(), 0);
  pool.share(3);
  pool.give_back(3);
  EXPECT_EQ(pool.free(), 0) << "the second reference still holds it";
  pool.give_back(3);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.take(), 3);
}

TEST(BlockTable, ReservesWholePagesOrNothing) {
  BlockPool pool(4);
  BlockTable a(pool, 16, 64), b(pool, 16, 64);
  EXPECT_TRUE(a.reserve(33));
  EXPECT_EQ(a.pages().size(), 3u);
  EXPECT_TRUE(a.reserve(48)) << "the third page has room";
  EXPECT_EQ(pool.free(), 1);
  EXPECT_FALSE(b.reserve(17));
  EXPECT_EQ(pool.free(), 1) << "a reservation that fails takes nothing";
  a.truncate(16);
  EXPECT_EQ(pool.free(), 3);
  EXPECT_TRUE(b.reserve(48));
  a.clear();
  EXPECT_EQ(pool.free(), 1);
}

TEST(BlockTable, GivesItsPagesBackWhenItGoes) {
  BlockPool pool(8);
  {
    BlockTable table(pool, 32, 256);
    ASSERT_TRUE(table.reserve(100));
    const BlockTable moved(std::move(table));
    EXPECT_EQ(moved.pages().size(), 4u);
    EXPECT_EQ(pool.free(), 4);
  }
  EXPECT_EQ(pool.free(), 8);
}

TEST(StateCache, RowsOfAllLayersHeadsAndSlotsAreDistinct) {
  StateLayout layout;
  EXPECT_EQ(layout.paged({2, 32, 32}), 0);
  EXPECT_EQ(layout.paged({1, 64, 32}), 1);
  EXPECT_EQ(layout.paged({1, 96, 64, /*latent=*/true}), 2);
  StateCache cache(layout, {DType::Q8_0, 16, 40});
  EXPECT_EQ(cache.capacity(), 48) << "rounded up to whole pages";
  std::set<const std::byte*> rows;
  size_t count = 0, bytes = 0;
  for (int layer = 0; layer < 3; ++layer) {
    const KvLayer kv = cache.paged(layer);
    for (int page = 0; page < 3; ++page) {
      for (int head = 0; head < kv.kv_heads; ++head) {
        for (int slot = 0; slot < 16; ++slot) {
          rows.insert(kv.keys + kv.key_offset(page, head, slot));
          bytes += kv.key_row_bytes();
          ++count;
          if (kv.latent) {
            EXPECT_EQ(kv.values + kv.value_offset(page, head, slot), kv.keys + kv.key_offset(page, head, slot));
            continue;
          }
          rows.insert(kv.values + kv.value_offset(page, head, slot));
          bytes += kv.value_row_bytes();
          ++count;
        }
      }
    }
  }
  EXPECT_EQ(rows.size(), count);
  EXPECT_LE(bytes, cache.bytes());
  EXPECT_EQ(bytes, 48 * layout.bytes_per_token(DType::Q8_0));
}

}  // namespace
}  // namespace millrace
