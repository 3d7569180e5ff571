#include "engine/measure/step_check.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

std::vector<StepTurn> turns(std::initializer_list<double> ratios) {
  std::vector<StepTurn> all;
  for (const double ratio : ratios) all.push_back({200, 200 * ratio});
  return all;
}

TEST(StepCheck, FasterPlansSurvive) {
  EXPECT_TRUE(survives(turns({0.8, 0.9, 0.7})));
  EXPECT_TRUE(survives(turns({0.9, 3.0, 0.9, 2.0, 0.95}))) << "two disturbed turns of five";
}

TEST(StepCheck, SlowerPlansDoNot) {
  EXPECT_FALSE(survives(turns({1.12, 1.10, 1.13, 1.09, 1.12})));
  EXPECT_FALSE(survives(turns({1.02, 1.03, 1.02})));
  EXPECT_FALSE(survives(turns({1.1, 0.3, 1.1, 0.3, 1.1}))) << "the old plans were disturbed twice";
}

TEST(StepCheck, EqualPlansSurvive) { EXPECT_TRUE(survives(turns({1.0, 1.01, 0.99}))); }

TEST(StepCheck, PlansWithoutAValidTurnDoNotSurvive) {
  EXPECT_FALSE(survives({}));
  EXPECT_FALSE(survives(std::vector<StepTurn>{{0, 10}, {10, 0}, {-1, -2}, {10, NAN}}));
}

TEST(StepCheck, RowsTellTheKindOfAStep) {
  EXPECT_EQ(kind_of_step(1, 8), StepKind::Single);
  EXPECT_EQ(kind_of_step(2, 8), StepKind::Batch);
  EXPECT_EQ(kind_of_step(8, 8), StepKind::Batch);
  EXPECT_EQ(kind_of_step(12, 8), StepKind::Prompt);
  EXPECT_EQ(kind_of_step(12, 9), StepKind::Batch) << "a bucket counts as a whole";
  EXPECT_EQ(kind_of_step(2, 1), StepKind::Prompt);
}

}  // namespace
}  // namespace millrace
