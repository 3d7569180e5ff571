#include "engine/chunk_memory.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(ChunkMemory, HundredsOfPromptsDoNotReplaceEachOther) {
  ChunkMemory memory;
  const auto prompt = [](int32_t i) { return std::vector<int32_t>{i, 7, i + 1}; };
  for (int32_t i = 0; i < 600; ++i) memory.keep(prompt(i), {}, {i, i + 64});
  for (int32_t i = 0; i < 600; ++i) {
    const auto found = memory.find(prompt(i), {});
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->first, i);
    EXPECT_EQ(found->last, i + 64);
  }
  EXPECT_FALSE(memory.find(prompt(600), {}));
}

TEST(ChunkMemory, AResumedPromptKeepsItsEarlierBeginning) {
  ChunkMemory memory;
  const std::vector<int32_t> prompt{1, 2, 3};
  memory.keep(prompt, {}, {0, 64});
  memory.keep(prompt, {}, {64, 64});
  EXPECT_EQ(memory.find(prompt, {})->first, 0);
  memory.keep(prompt, {}, {32, 48});  // other chunks
  EXPECT_EQ(memory.find(prompt, {})->first, 32);
}

}  // namespace
}  // namespace millrace
