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
  EXPECT_THAT(plan.choose(offers, {.sequences = 3, .rows = 100}, step_of(0)), ElementsAre(4, 0, 2));
  EXPECT_THAT(plan.choose(offers, {.sequences = 3, .rows = 3}, step_of(0)), ElementsAre(1, 0, 2));
}

TEST(DraftPlan, StopsWhereATokenCostsMoreThanItGives) {
  DraftPlan plan;
  const std::vector<DraftOffer> one{{8, 0.5}};
  // 1 / 1000 without drafts; 1.5 / 1200; 1.75 / 1400: as good as before.
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .rows = 100}, step_of(200)), ElementsAre(1));
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .rows = 100}, step_of(499)), ElementsAre(1));
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .rows = 100}, step_of(501)), ElementsAre(0));
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .rows = 100, .margin = 0.1}, step_of(450)), ElementsAre(0));
}

TEST(DraftPlan, LikelierDraftsGetMoreRows) {
  DraftPlan plan;
  const std::vector<DraftOffer> offers{{6, 0.3}, {6, 0.9}};
  const auto lengths = plan.choose(offers, {.sequences = 2, .rows = 100}, step_of(180));
  EXPECT_EQ(lengths[0], 0);
  EXPECT_GT(lengths[1], 2);
}

// Kernels are planned by bucket of rows, so the first row beyond a bucket costs as much as the whole bucket.
TEST(DraftPlan, LooksBeyondAJumpOfTheCost) {
  DraftPlan plan;
  const auto jump = [](const DraftedRows& rows) { return rows.tokens == 0 ? 1000.0 : 2000.0; };
  const std::vector<DraftOffer> one{{7, 0.9}};
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .rows = 100}, jump), ElementsAre(7));
  EXPECT_THAT(plan.choose(one, {.sequences = 1, .rows = 1}, jump), ElementsAre(0));
}

TEST(DraftPlan, CountsTheDraftersPasses) {
  DraftPlan plan;
  const auto with_passes = [](const DraftedRows& rows) { return 1000 + 300.0 * static_cast<double>(rows.longest); };
  const std::vector<DraftOffer> offers(4, {5, 0.7});
  // A pass drafts for all sequences together, so all drafts are equally long.
  const auto lengths = plan.choose(offers, {.sequences = 4, .rows = 100}, with_passes);
  EXPECT_GT(lengths[0], 0);
  EXPECT_LT(lengths[0], 5);
  EXPECT_THAT(lengths, testing::Each(lengths[0]));
}

// A step of 1000 us, and so much per row and per branch.
auto tree_of(double row_us, double branch_us) {
  return [=](const DraftedRows& d) {
    return 1000 + row_us * static_cast<double>(d.rows()) + branch_us * static_cast<double>(d.branches);
  };
}

TEST(DraftPlan, BranchesMustRaiseTheRate) {
  DraftPlan plan;
  const auto width = [&](double chance, double other, double row_us, double branch_us, double margin = 0.03) {
    const std::vector<DraftOffer> one{{4, chance, 3, {other, other, other}}};
    plan.choose(one, {.sequences = 1, .rows = 100, .margin = margin, .branches = 3}, tree_of(row_us, branch_us));
    return plan.branches()[0];
  };
  EXPECT_EQ(width(0.7, 0.5, 0, 0), 3) << "0.4 tokens more than 2.8, then 0.2 and 0.1";
  EXPECT_EQ(width(0.7, 0.5, 0, 100), 1) << "14 % of the tokens for 10 % of the time, then 6 %";
  EXPECT_EQ(width(0.7, 0.5, 0, 150), 0);
  EXPECT_EQ(width(0.7, 0.5, 30, 0), 0) << "five rows cost 15 %";
  EXPECT_EQ(width(0.98, 0.5, 0, 0), 0) << "the draft is hardly ever wrong";
  EXPECT_EQ(width(0.5, 0.01, 0, 0), 0) << "and so is its alternative right";
  EXPECT_EQ(width(0.7, 0.2, 0, 0, 0.15), 0) << "15 % more tokens are needed, and three branches promise 13";
  EXPECT_GT(width(0.7, 0.5, 0, 0, 0.15), 0);
}

TEST(DraftPlan, BranchesFitIntoRowsAndPlaces) {
  DraftPlan plan;
  const std::vector<DraftOffer> offers{{4, 0.6, 3, {0.5, 0.5, 0.5}}, {4, 0.6, 1, {0.6}}, {4, 0.6, 0}};
  const auto branches = [&](int64_t rows, int64_t places) {
    const auto lengths = plan.choose(offers, {.sequences = 3, .rows = rows, .branches = places}, tree_of(0, 0));
    EXPECT_THAT(lengths, testing::Each(4));
    return plan.branches();
  };
  EXPECT_THAT(branches(100, 100), ElementsAre(3, 1, 0));
  EXPECT_THAT(branches(100, 2), ElementsAre(1, 1, 0)) << "the likelier ones";
  EXPECT_THAT(branches(17, 100), ElementsAre(0, 1, 0)) << "a branch of four tokens has five rows";
  EXPECT_THAT(branches(16, 100), ElementsAre(0, 0, 0));
  EXPECT_THAT(branches(100, 0), ElementsAre(0, 0, 0));
}

TEST(DraftPlan, BranchesChangeNoDraft) {
  DraftPlan plan;
  const std::vector<DraftOffer> with{{8, 0.6, 3, {0.9, 0.5, 0.5}}, {8, 0.3, 3, {0.9, 0.9, 0.9}}},
      without{{8, 0.6}, {8, 0.3}};
  for (const double row_us : {0.0, 20.0, 60.0, 150.0, 400.0}) {
    const DraftPlan::Limits limits{.sequences = 2, .rows = 100, .branches = 6};
    const auto alone = plan.choose(without, limits, tree_of(row_us, 0));
    const std::vector<int32_t> lengths(alone.begin(), alone.end());
    EXPECT_THAT(plan.choose(with, limits, tree_of(row_us, 0)), testing::ElementsAreArray(lengths));
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(lengths[i] > 0 || plan.branches()[i] == 0);
  }
}

TEST(DraftPlan, SharesBranchesInTurns) {
  DraftPlan plan;
  const std::vector<DraftOffer> offers{{2, 0, 3}, {4, 0, 1}, {0, 0, 3}};
  EXPECT_THAT(plan.share(offers, 100, 100), ElementsAre(2, 4, 0));
  EXPECT_THAT(plan.branches(), ElementsAre(3, 1, 0));
  plan.share(offers, 100, 2);
  EXPECT_THAT(plan.branches(), ElementsAre(1, 1, 0));
  plan.share(offers, 14, 100);
  EXPECT_THAT(plan.branches(), ElementsAre(1, 1, 0)) << "6 rows of drafts, then 3 and 5";
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

// Every alternative that the drafter names counts, whether its branch was verified or not.
TEST(DraftHistory, LearnsTheChancesOfAlternatives) {
  DraftHistory history;
  const auto before = history.other_chances();
  const std::vector<int32_t> others{5, 6, 7};
  for (int i = 0; i < 40; ++i) history.record_others(others, i % 2 == 0 ? 5 : 6);
  EXPECT_NEAR(history.other_chances()[0], 0.5, 0.1);
  EXPECT_GT(history.other_chances()[1], 0.8) << "where the first is wrong, the second is right";
  EXPECT_EQ(history.other_chances()[2], before[2]) << "never reached";
  for (int i = 0; i < 40; ++i) history.record_others(std::span(others).first(1), 9);
  EXPECT_LT(history.other_chances()[0], 0.1);
}

// A branch that is accepted shows that the first draft token was wrong, and how right the tokens behind it are.
TEST(DraftHistory, BranchesCountTheirFurtherTokens) {
  DraftHistory drafts, branches;
  drafts.record(4, 3);  // three of four tried
  branches.record(4, 4, /*branched=*/true);
  EXPECT_DOUBLE_EQ(branches.chance(), drafts.chance());
  branches.record(4, 1, true);
  drafts.record(2, 0);
  EXPECT_LT(branches.chance(), drafts.chance());
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
