#include "engine/draft_plan.h"

#include <gmock/gmock.h>

#include "engine/draft_history.h"

namespace millrace {
namespace {

using testing::ElementsAre;

// A step of 1000 us and `row_us` per draft token.
auto step_of(double row_us) {
  return [row_us](const DraftedRows& rows) { return 1000 + row_us * static_cast<double>(rows.tokens); };
}

TEST(DraftPlan, FreeRowsAreAllTaken) {
  DraftPlan plan;
  const std::vector<DraftOffer> offers{{4, 0.1}, {0, 0.9}, {2, 0.5}};
  EXPECT_THAT(plan.choose(offers, {.sequences = 3, .tokens = 100}, step_of(0)), ElementsAre(4, 0, 2));
  EXPECT_THAT(plan.choose(offers, {.sequences = 3, .tokens = 3}, step_of(0)), ElementsAre(1, 0, 2));
}

TEST(DraftPlan, StopsWhereATokenCostsMoreThanItGives) {
  DraftPlan plan;
  const std::vector<DraftOffer> one{{8, 0.5}};
  // 1 / 1000 without drafts; 1.5 / 1200; 1.75 / 1400: as good as before.
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .tokens = 100}, step_of(200)), ElementsAre(1));
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .tokens = 100}, step_of(499)), ElementsAre(1));
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .tokens = 100}, step_of(501)), ElementsAre(0));
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .tokens = 100, .margin = 0.1}, step_of(450)), ElementsAre(0));
}

TEST(DraftPlan, LikelierDraftsGetMoreRows) {
  DraftPlan plan;
  const std::vector<DraftOffer> offers{{6, 0.3}, {6, 0.9}};
  const auto lengths = plan.choose(offers, {.sequences = 2, .tokens = 100}, step_of(180));
  EXPECT_EQ(lengths[0], 0);
  EXPECT_GT(lengths[1], 2);
}

// Kernels are planned by bucket of rows, so the first row beyond a bucket costs as much as the whole bucket.
TEST(DraftPlan, LooksBeyondAJumpOfTheCost) {
  DraftPlan plan;
  const auto jump = [](const DraftedRows& rows) { return rows.tokens == 0 ? 1000.0 : 2000.0; };
  const std::vector<DraftOffer> one{{7, 0.9}};
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .tokens = 100}, jump), ElementsAre(7));
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .tokens = 1}, jump), ElementsAre(0));
}

TEST(DraftPlan, CountsTheDraftersPasses) {
  DraftPlan plan;
  const auto with_passes = [](const DraftedRows& rows) { return 1000 + 300.0 * static_cast<double>(rows.longest); };
  const std::vector<DraftOffer> offers(4, {5, 0.7});
  // A pass drafts for all sequences together, so all drafts are equally long.
  const auto lengths = plan.choose(offers, {.sequences = 4, .tokens = 100}, with_passes);
  EXPECT_GT(lengths[0], 0);
  EXPECT_LT(lengths[0], 5);
  EXPECT_THAT(lengths, testing::Each(lengths[0]));
}

TEST(DraftPlan, SharesRowsEvenly) {
  DraftPlan plan;
  const std::vector<DraftOffer> offers{{1, 0}, {9, 0}, {9, 0}};
  EXPECT_THAT(plan.share(offers, 9), ElementsAre(1, 4, 4));
  EXPECT_THAT(plan.share(offers, 0), ElementsAre(0, 0, 0));
}

TEST(DraftHistory, FollowsTheAcceptance) {
  DraftHistory right, wrong;
  const double before = right.chance();
  for (int i = 0; i < 20; ++i) right.record(4, 4), wrong.record(4, 0);
  EXPECT_GT(right.chance(), 0.9);
  EXPECT_LT(wrong.chance(), 0.15);
  for (int i = 0; i < 30; ++i) wrong.record(0, 0);
  EXPECT_LT(wrong.chance(), 0.2) << "is not forgotten at once";
  for (int i = 0; i < 600; ++i) wrong.record(0, 0);
  EXPECT_NEAR(wrong.chance(), before, 0.05) << "is forgotten in the end";
}

TEST(DraftHistory, SequencesWithoutDraftsLookRarely) {
  DraftHistory history;
  EXPECT_TRUE(history.due(1));
  for (int i = 0; i < 5; ++i) history.record(0, 0);
  for (int64_t step = 1; step < 40; ++step) EXPECT_EQ(history.due(step), step % 8 == 0);
  history.record(2, 0);
  EXPECT_TRUE(history.due(1));
}

}  // namespace
}  // namespace millrace
