// States of parked sessions in memory and on disk: what the limits keep, what damaged files cost, and that nothing
// leaks.
#include "engine/parked_states.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "fresh_seed.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

class ParkedStatesTest : public testing::Test {
 protected:
  ParkedStatesTest() : folder_(fs::path(testing::TempDir()) / ("millrace-park-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
  }
  ~ParkedStatesTest() override { fs::remove_all(folder_); }

  ParkLimits limits(int64_t memory, int64_t disk = 0) {
    ParkLimits limits{.memory = memory, .disk = disk, .now = [this] { return now_; }};
    if (disk > 0) limits.folder = folder_;
    return limits;
  }
  // A state of 1000 bytes, with its tokens.
  static ParkedState state(int32_t session, int32_t tokens = 10) {
    ParkedState made;
    made.tokens = tokens_of(session, tokens);
    made.saved.tokens = tokens;
    made.saved.pages.assign(static_cast<size_t>(1000 - 4 * tokens), static_cast<std::byte>(session));
    return made;
  }
  static Tokens tokens_of(int32_t session, int32_t tokens = 10) {
    Tokens made(static_cast<size_t>(tokens), session);
    made[0] = 7;  // all sessions begin alike
    return made;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (!fs::exists(folder_)) return found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }

  const fs::path folder_;
  double now_ = 0;
};

TEST_F(ParkedStatesTest, MemoryKeepsTheLatest) {
  ParkedStates states(limits(3000), "model");
  for (int32_t session = 1; session <= 4; ++session) states.put(state(session));
  EXPECT_EQ(states.stats().memory_bytes, 3000);
  EXPECT_EQ(states.stats().dropped, 1U);
  EXPECT_EQ(states.find({}, tokens_of(1, 20)).tokens, 1);  // of another session
  const auto found = states.find({}, tokens_of(4, 20));
  EXPECT_EQ(found.tokens, 10);
  EXPECT_EQ(found.state->saved.pages, state(4).saved.pages);
  EXPECT_EQ(states.find({.adapter = "other"}, tokens_of(4, 20)).state, nullptr);
  states.restored(*found.state, 3);  // the rest may still be wanted
  EXPECT_EQ(states.stats().in_memory, 3);
  states.restored(*found.state, 10);
  EXPECT_EQ(states.stats().in_memory, 2);
  states.forget({}, tokens_of(3, 12));  // two of its tokens were never computed
  EXPECT_EQ(states.stats().in_memory, 1);
  states.forget({}, tokens_of(2, 9));
  EXPECT_EQ(states.stats().memory_bytes, 1000);
}

TEST_F(ParkedStatesTest, OldOnesAreDropped) {
  ParkedStates states(limits(3000, 3000), "model");
  states.put(state(1));
  now_ = 3000;
  states.put(state(2));
  now_ = 3601;
  EXPECT_EQ(states.find({}, tokens_of(1)).tokens, 1);
  EXPECT_EQ(states.find({}, tokens_of(2)).tokens, 10);
  EXPECT_EQ(states.stats().dropped, 1U);
}

TEST_F(ParkedStatesTest, RecurrentStateResumesAtItsSnapshots) {
  ParkedStates states(limits(3000), "model");
  ParkedState made = state(1);
  made.saved.stops = {10, 6};
  states.put(std::move(made));
  EXPECT_EQ(states.find({}, tokens_of(1, 9)).tokens, 6);
  EXPECT_EQ(states.find({}, tokens_of(1, 5)).tokens, 0);
}

TEST_F(ParkedStatesTest, TheDiskTakesWhatMemoryCannotHoldAndOutlivesTheProcess) {
  {
    ParkedStates states(limits(1000, 100000), "model");
    for (int32_t session = 1; session <= 3; ++session) states.put(state(session));
    states.settle();
    EXPECT_EQ(states.stats().in_memory, 1);
    EXPECT_EQ(states.stats().on_disk, 2);
    EXPECT_EQ(files().size(), 2U);
    EXPECT_EQ(states.find({}, tokens_of(1)).place, ParkPlace::Disk);
    const auto read = states.fetch({}, tokens_of(1, 15));
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(read->saved.pages, state(1).saved.pages);
    EXPECT_EQ(states.fetch({}, tokens_of(3)), nullptr);  // in memory
    EXPECT_EQ(states.fetch({}, tokens_of(9)), nullptr);  // only the beginning that all share
    states.restored(*read, 10);
    states.settle();
    EXPECT_EQ(files().size(), 1U);
  }
  EXPECT_EQ(files().size(), 2U);
  {
    ParkedStates other(limits(1000, 100000), "another-model");
    EXPECT_EQ(other.stats().on_disk, 0);
    EXPECT_EQ(other.fetch({}, tokens_of(2)), nullptr);
  }
  ParkedStates again(limits(1000, 100000), "model");
  EXPECT_EQ(again.stats().on_disk, 2);
  ASSERT_NE(again.fetch({}, tokens_of(2)), nullptr);
  ASSERT_NE(again.fetch({}, tokens_of(3)), nullptr);
}

TEST_F(ParkedStatesTest, TheDiskHasALimit) {
  {
    ParkedStates states(limits(0, 2500), "model");
    for (int32_t session = 1; session <= 5; ++session) {
      states.put(state(session));
      states.settle();
    }
    EXPECT_EQ(states.stats().on_disk, 2);
    EXPECT_EQ(states.fetch({}, tokens_of(3)), nullptr);
    EXPECT_NE(states.fetch({}, tokens_of(5)), nullptr);
  }
  ParkedStates smaller(limits(0, 1100), "model");
  smaller.settle();
  EXPECT_EQ(smaller.stats().on_disk, 1);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(ParkedStatesTest, DamagedFilesAreComputedAgain) {
  const auto park_two = [&] {
    ParkedStates states(limits(0, 100000), "model");
    states.put(state(1));
    states.settle();
    states.put(state(2));
  };
  // Damage that shows when a process starts.
  for (const char* damage : {"empty", "cut", "foreign"}) {
    SCOPED_TRACE(damage);
    park_two();
    ASSERT_EQ(files().size(), 2U);
    for (const auto& path : files()) {
      if (damage == std::string("empty")) fs::resize_file(path, 0);
      if (damage == std::string("cut")) fs::resize_file(path, fs::file_size(path) - 1);
      if (damage == std::string("foreign")) std::ofstream(path, std::ios::trunc) << std::string(1068, 'x');
    }
    ParkedStates states(limits(0, 100000), "model");
    EXPECT_EQ(states.stats().on_disk, 0);
    EXPECT_TRUE(files().empty());
  }
  // Damage that shows when a file is read: other bytes, or no file any more.
  park_two();
  ParkedStates states(limits(0, 100000), "model");
  const auto found = files();
  ASSERT_EQ(found.size(), 2U);
  {
    std::fstream file(found[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('~');
  }
  fs::remove(found[1]);
  EXPECT_EQ(states.fetch({}, tokens_of(1)), nullptr);
  EXPECT_EQ(states.fetch({}, tokens_of(2)), nullptr);
  EXPECT_EQ(states.stats().on_disk, 0);
  EXPECT_EQ(states.stats().dropped, 2U);
  states.settle();
  EXPECT_TRUE(files().empty());
}

TEST_F(ParkedStatesTest, AFolderThatCannotBeUsedCostsTheDiskOnly) {
  std::ofstream(folder_) << "a file";
  {
    ParkedStates states(limits(3000, 3000), "model");
    EXPECT_FALSE(states.writes());
    states.put(state(1));
    EXPECT_EQ(states.find({}, tokens_of(1)).tokens, 10);
  }
  fs::remove(folder_);
  ParkedStates states(limits(1000, 3000), "model");
  fs::remove_all(folder_);  // as a full disk: writes fail
  for (int32_t session = 1; session <= 3; ++session) states.put(state(session));
  states.settle();
  EXPECT_EQ(states.stats().on_disk, 0);
  EXPECT_EQ(states.stats().in_memory, 1);
  EXPECT_EQ(states.stats().dropped, 2U);
}

TEST_F(ParkedStatesTest, NothingLeaks) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ParkedStates states(limits(5000, 20000), "model");
  for (int turn = 0; turn < 3000; ++turn) {
    const auto session = static_cast<int32_t>(random() % 100);
    switch (random() % 4) {
      case 0:
        states.forget({}, tokens_of(session));
        break;
      case 1: {
        auto found = states.find({}, tokens_of(session)).state;
        if (found == nullptr) found = states.fetch({}, tokens_of(session));
        if (found != nullptr) states.restored(*found, found->saved.tokens);
        break;
      }
      default:
        states.put(state(session));
    }
    const ParkStats stats = states.stats();
    ASSERT_EQ(stats.memory_bytes, 1000 * stats.in_memory);
    ASSERT_LE(stats.disk_bytes, 20000);
  }
  states.settle();
  EXPECT_LE(states.stats().memory_bytes, 5000);
  EXPECT_EQ(files().size(), static_cast<size_t>(states.stats().on_disk));
  for (int32_t session = 0; session < 100; ++session) states.forget({}, tokens_of(session));
  states.settle();
  EXPECT_EQ(states.stats().in_memory + states.stats().on_disk, 0);
  EXPECT_EQ(states.stats().memory_bytes + states.stats().disk_bytes, 0);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace millrace
