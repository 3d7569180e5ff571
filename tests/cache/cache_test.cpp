#include <gtest/gtest.h>

#include <algorithm>
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

TEST(StateLayout, CountsBytesByKind) {
  StateLayout layout;
  layout.paged({4, 192, 128});
  layout.paged({1, 576, 512, /*latent=*/true});
  EXPECT_EQ(layout.bytes_per_token(DType::F16), 2u * (4 * (192 + 128) + 576)) << "a latent value is part of its key";
  EXPECT_EQ(layout.bytes_per_token(DType::Q8_0), 34u * (4 * (6 + 4) + 18));
  EXPECT_EQ(layout.bytes_per_slot(), 0u);
  EXPECT_EQ(layout.slot({DType::F32, 100}), 0);
  EXPECT_EQ(layout.slot({DType::F16, 3}), 1);
  EXPECT_EQ(layout.slot_offset(1), Arena::padded(400));
  EXPECT_EQ(layout.bytes_per_slot(), Arena::padded(400) + Arena::padded(6));
  EXPECT_EQ(layout.paged().size(), 2u);
  EXPECT_EQ(layout.slots().size(), 2u);
}

class CopiedPage : public testing::TestWithParam<bool> {};

TEST_P(CopiedPage, HasAllKindsOfRows) {
  StateLayout layout;
  layout.paged({2, 32, 16});
  layout.paged(GetParam() ? PagedShape{2, 32, 16} : PagedShape{1, 24, 16, /*latent=*/true});
  layout.paged({2, 32, 16});
  StateCache cache(layout, {DType::F16, 4, 16});
  const auto halves = [&](int page) {  // keys and values of each state
    std::vector<std::span<std::byte>> all;
    for (int i = 0; i < cache.paged_states(); ++i) {
      const KvLayer kv = cache.paged(i);
      all.emplace_back(kv.keys + kv.key_offset(page, 0, 0), kv.key_offset(1, 0, 0));
      if (!kv.latent) all.emplace_back(kv.values + kv.value_offset(page, 0, 0), kv.value_offset(1, 0, 0));
    }
    return all;
  };
  for (int page = 0; page < 4; ++page) {
    int number = 10 * page;
    for (const auto half : halves(page)) std::fill(half.begin(), half.end(), std::byte(++number));
  }
  cache.copy_page(1, 3);
  for (int page = 0; page < 4; ++page) {
    int number = 10 * (page == 3 ? 1 : page);
    for (const auto half : halves(page)) {
      ++number;
      EXPECT_TRUE(std::all_of(half.begin(), half.end(), [&](std::byte b) { return b == std::byte(number); })) << page;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(StateCache, CopiedPage, testing::Bool(),
                         [](const auto& info) { return info.param ? "OneShape" : "TwoShapes"; });

TEST(SlotPool, GivesEachSlotOnceAndTakesItBack) {
  SlotPool pool(3);
  std::vector<Slot> slots;
  std::set<int32_t> ids;
  for (int i = 0; i < 3; ++i) ids.insert(slots.emplace_back(pool.take()).id());
  EXPECT_EQ(ids, (std::set<int32_t>{0, 1, 2}));
  EXPECT_FALSE(pool.take());
  const int32_t id = slots[1].id();
  slots[0] = std::move(slots[1]);  // frees the slot it held
  EXPECT_EQ(slots[0].id(), id);
  EXPECT_FALSE(slots[1]);
  EXPECT_EQ(pool.free(), 1);
  slots.clear();
  EXPECT_EQ(pool.free(), 3);
}

class SlotsTest : public testing::Test {
 protected:
  static StateLayout layout() {
    StateLayout layout;
    layout.slot({DType::F32, 50});
    layout.slot({DType::F16, 7});
    return layout;
  }
  void fill(int32_t slot, int number) {
    for (int i = 0; i < 2; ++i) {
      const SlotView view = cache_.slot(i);
      std::fill_n(view.at(slot), row_bytes(view.dtype, view.elements), std::byte(number + i));
    }
  }
  bool holds(int32_t slot, int number) const {
    for (int i = 0; i < 2; ++i) {
      const SlotView view = cache_.slot(i);
      const std::byte expected{static_cast<unsigned char>(number == 0 ? 0 : number + i)};
      if (!std::all_of(view.at(slot), view.at(slot) + row_bytes(view.dtype, view.elements),
                       [&](std::byte b) { return b == expected; }))
        return false;
    }
    return true;
  }

  StateCache cache_{layout(), {DType::F16, 16, 64, 5}};  // no paged states
};

TEST_F(SlotsTest, ASnapshotIsRestored) {
  EXPECT_EQ(cache_.slot(0).elements, 50);
  EXPECT_EQ(cache_.slot(1).dtype, DType::F16);
  for (int32_t slot = 0; slot < 5; ++slot) fill(slot, 10 * (slot + 1));
  cache_.copy_slot(1, 3);  // the snapshot
  fill(1, 70);
  EXPECT_TRUE(holds(1, 70));
  EXPECT_TRUE(holds(3, 20));
  cache_.copy_slot(3, 1);
  EXPECT_TRUE(holds(1, 20)) << "as before it was overwritten";
  cache_.clear_slot(3);
  EXPECT_TRUE(holds(3, 0));
  for (const int32_t other : {0, 2, 4}) EXPECT_TRUE(holds(other, 10 * (other + 1))) << other;
}

TEST_F(SlotsTest, NewSlotsAreCleared) {
  std::vector<Slot> all;
  for (int32_t slot = 0; slot < 5; ++slot) fill(slot, 9);
  while (Slot slot = cache_.new_slot()) {
    EXPECT_TRUE(holds(slot.id(), 0));
    all.push_back(std::move(slot));
  }
  EXPECT_EQ(all.size(), 5u);
}

TEST(StateCache, AModelWithoutSlotsPaysNothingForThem) {
  StateLayout layout;
  layout.paged({1, 32, 32});
  StateCache with(layout, {DType::F16, 16, 64, 100}), without(layout, {DType::F16, 16, 64});
  EXPECT_EQ(with.bytes(), without.bytes());
  EXPECT_FALSE(with.has_slots());
  EXPECT_FALSE(with.new_slot());
}

}  // namespace
}  // namespace millrace
