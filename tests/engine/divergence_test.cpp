#include "engine/measure/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "engine/measure/saved_logits.h"
#include "fresh_seed.h"

namespace millrace {
namespace {

TEST(Divergence, IsZeroOfEqualProbabilities) {
  const std::vector<float> logits{1, -2, 3}, shifted{101, 98, 103};
  EXPECT_EQ(kl_divergence(logits, logits), 0);
  EXPECT_NEAR(kl_divergence(logits, shifted), 0, 1e-6);
}

TEST(Divergence, IsThatOfTheTextbook) {
  const std::vector<float> even{0, 0}, uneven{std::log(3.0f), 0};  // 1/2 and 1/2, 3/4 and 1/4
  EXPECT_NEAR(kl_divergence(even, uneven), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-6);
  EXPECT_NEAR(kl_divergence(uneven, even), 0.75 * std::log(0.75 / 0.5) + 0.25 * std::log(0.25 / 0.5), 1e-6);
}

TEST(Divergence, ImpossibleTokensOfTheExactModelDoNotCount) {
  const std::vector<float> exact{0, -INFINITY}, logits{0, -5};
  EXPECT_NEAR(kl_divergence(exact, logits), std::log(1 + std::exp(-5.0)), 1e-6);
}

constexpr int64_t kVocab = 301;

class SavedLogitsTest : public testing::Test {
 protected:
  SavedLogitsTest() : tokens_(64) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
    std::filesystem::create_directories(path_.parent_path());
  }
  ~SavedLogitsTest() override { std::filesystem::remove_all(path_.parent_path()); }

  ScoredText text() const { return {tokens_, 16, 3, -1}; }
  void save(const std::vector<std::vector<float>>& rows) {
    LogitsWriter writer(path_, text(), kVocab);
    for (const auto& row : rows) writer.add(row);
    writer.finish();
  }

  std::vector<int32_t> tokens_;
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("saved_logits_" + std::to_string(std::random_device()())) / "logits";
};

TEST_F(SavedLogitsTest, ReturnAsTheyWere) {
  std::mt19937 random(fresh_seed());
  std::normal_distribution<float> normal(0, 7);
  std::vector<std::vector<float>> rows(static_cast<size_t>(text().rows()), std::vector<float>(kVocab));
  for (auto& row : rows) std::ranges::generate(row, [&] { return normal(random); });
  rows[1].assign(kVocab, 3.5F);  // no range
  save(rows);
  LogitsReader reader(path_, text(), kVocab);
  for (const auto& row : rows) {
    const auto [low, high] = std::ranges::minmax(row);
    const auto stored = reader.next();
    for (size_t i = 0; i < row.size(); ++i) ASSERT_NEAR(stored[i], row[i], (high - low) / 65535 + 1e-6);
    EXPECT_LT(kl_divergence(row, stored), 1e-6);
  }
}

TEST_F(SavedLogitsTest, InfiniteOnesBecomeTheSmallest) {
  std::vector<std::vector<float>> rows(static_cast<size_t>(text().rows()), std::vector<float>(kVocab, 1));
  rows[0][7] = -INFINITY;
  rows[0][8] = -2;
  save(rows);
  LogitsReader reader(path_, text(), kVocab);
  const auto stored = reader.next();
  EXPECT_EQ(stored[7], -2);
  EXPECT_NEAR(stored[9], 1, 1e-4);
}

TEST_F(SavedLogitsTest, DamagedModelsAndUnfinishedFilesLeaveNothing) {
  {
    LogitsWriter writer(path_, text(), kVocab);
    std::vector<float> row(kVocab, 1);
    row[3] = NAN;
    EXPECT_THROW(writer.add(row), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(path_.parent_path()));
}

TEST_F(SavedLogitsTest, OfAnotherTextAreRefused) {
  save(std::vector<std::vector<float>>(static_cast<size_t>(text().rows()), std::vector<float>(kVocab, 1)));
  EXPECT_THROW(LogitsReader(path_, text(), kVocab + 1), Error);
  ScoredText other = text();
  other.context = 8;
  EXPECT_THROW(LogitsReader(path_, other, kVocab), Error);
  ++tokens_[5];
  EXPECT_THROW(LogitsReader(path_, text(), kVocab), Error);
}

}  // namespace
}  // namespace millrace
