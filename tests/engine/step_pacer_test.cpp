#include "engine/step_pacer.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// A machine whose steps take 1000 us plus 100 us per row. The estimate is off by `factor`.
StepEstimate linear_estimate(double factor) {
  StepEstimate estimate;
  for (const double rows : {1.0, 2.0, 4.0, 8.0, 64.0, 512.0})
    estimate.by_rows.emplace_back(rows, factor * (1000 + 100 * rows));
  return estimate;
}
double real_us(int64_t rows) { return 1000 + 100.0 * static_cast<double>(rows); }

TEST(StepPacer, WithoutStreamsAChunkIsAsLargeAsItGets) {
  StepPacer pacer([] { return linear_estimate(1); }, {});
  EXPECT_EQ(pacer.chunk({0, 0}, {PromptLength::Long, 0}, 512), 512);
}

TEST(StepPacer, AChunkFitsTheTarget) {
  StepPacer pacer([] { return linear_estimate(1); }, {.target_us = 5000});
  EXPECT_EQ(pacer.chunk({8, 0}, {PromptLength::Long, 0}, 512), 32);
  EXPECT_EQ(pacer.chunk({8, 0}, {PromptLength::Long, 0}, 10), 10);
}

TEST(StepPacer, PromptsNeverStandStill) {
  StepPacer pacer([] { return linear_estimate(1); }, {.target_us = 1});
  EXPECT_EQ(pacer.chunk({8, 0}, {PromptLength::Long, 0}, 512), 1);
}

TEST(StepPacer, ShortPromptsMayTakeAStepOfTheirOwnLength) {
  StepPacer pacer([] { return linear_estimate(1); }, {.slack = 0.5, .short_us = 9000});
  EXPECT_EQ(pacer.chunk({1, 0}, {PromptLength::Long}, 512), 5);
  EXPECT_EQ(pacer.chunk({1, 0}, {PromptLength::Short}, 512), 79);
  EXPECT_EQ(pacer.chunk({100, 0}, {PromptLength::Short}, 512), 55);  // the slack of a long step exceeds short_us
  StepPacer with_target([] { return linear_estimate(1); }, {.target_us = 5000});
  EXPECT_EQ(with_target.chunk({8, 0}, {PromptLength::Short, 0, 5000, 1}, 512), 32);  // an explicit target overrides all
}

TEST(StepPacer, ShortPromptsGainRoomWithTheirAgeAndNumber) {
  StepPacer pacer([] { return linear_estimate(1); }, {.slack = 0, .short_us = 0, .aged_us = 11000, .burst_us = 21000});
  const auto chunk = [&](double age, int64_t rows) {
    return pacer.chunk({10, 0}, {PromptLength::Short, 0, rows, age}, 512);
  };
  EXPECT_EQ(chunk(0, 100), 1);     // no slack
  EXPECT_EQ(chunk(0.5, 100), 22);  // a quarter of the way from 2000 to 11000 us
  EXPECT_EQ(chunk(1, 100), 90);
  EXPECT_EQ(chunk(7, 100), 90);    // older than the decodes
  EXPECT_EQ(chunk(1, 7500), 139);  // prompts of 764648 us
  EXPECT_EQ(chunk(1, 50000), 190);
  EXPECT_EQ(pacer.chunk({10, 0}, {PromptLength::Long, 0, 50000, 1}, 512), 1);
}

TEST(StepPacer, LongContextsLeaveLessRoom) {
  auto estimate = linear_estimate(1);
  estimate.prefill_us_per_position = 0.1;
  estimate.decode_us_per_position = 0.1;
  StepPacer pacer([&] { return estimate; }, {.target_us = 5000});
  EXPECT_EQ(pacer.chunk({8, 0}, {PromptLength::Long, 1000}, 512), 16);
  EXPECT_EQ(pacer.chunk({8, 16000}, {PromptLength::Long, 1000}, 512), 8);
}

TEST(StepPacer, AStepThatWasHeldUpMakesNoRoom) {
  StepPacer pacer([] { return linear_estimate(1); }, {});
  pacer.chunk({8, 0}, {PromptLength::Long, 0}, 512);  // computes the estimate
  for (int i = 0; i < 20; ++i) pacer.record({8, 0}, 0, 0, real_us(8));
  const int64_t usual = pacer.chunk({8, 0}, {PromptLength::Long, 0}, 512);
  pacer.record({8, 0}, 0, 0, 50 * real_us(8));
  EXPECT_LE(pacer.chunk({8, 0}, {PromptLength::Long, 0}, 512), usual + 1);
}

TEST(StepPacer, AStepThatWasHeldUpTakesNoRoomAway) {
  StepPacer pacer([] { return linear_estimate(1); }, {});
  pacer.chunk({8, 0}, {PromptLength::Long, 0}, 512);
  for (int i = 0; i < 20; ++i) pacer.record({8, 0}, 0, 0, real_us(8));
  for (int i = 0; i < 20; ++i) pacer.record({8, 0}, 4, 0, real_us(12));
  const int64_t usual = pacer.chunk({8, 0}, {PromptLength::Long, 0}, 512);
  pacer.record({8, 0}, 4, 0, 50 * real_us(12));
  EXPECT_GE(pacer.chunk({8, 0}, {PromptLength::Long, 0}, 512), usual - 1);
}

// Simulated steps: however wrong the estimate is, step times soon meet the target.
TEST(StepPacer, LearnsWhatStepsTake) {
  for (const double factor : {0.2, 1.0, 5.0}) {
    StepPacer pacer([&] { return linear_estimate(factor); }, {.slack = 0.35});
    const Decodes decodes{8, 0};
    pacer.chunk(decodes, {PromptLength::Long, 0}, 512);
    for (int i = 0; i < 20; ++i) pacer.record(decodes, 0, 0, real_us(8));
    int64_t chunk = 0;
    for (int i = 0; i < 50; ++i) {
      chunk = pacer.chunk(decodes, {PromptLength::Long, 0}, 512);
      pacer.record(decodes, chunk, 0, real_us(8 + chunk));
    }
    EXPECT_LE(real_us(8 + chunk), 1.40 * real_us(8)) << "factor " << factor;
    EXPECT_GE(real_us(8 + chunk), 1.25 * real_us(8)) << "factor " << factor;
  }
}

// A branch computes a row more than it has draft tokens, reads the context of its sequence and copies a page.
TEST(StepEstimate, CountsWhatABranchCosts) {
  StepEstimate estimate;
  estimate.by_verified = {{1, 100}, {11, 200}};
  estimate.decode_us_per_position = 0.1;
  estimate.draft_us_per_position = 0.01;
  estimate.copy_page_us = 5;
  EXPECT_DOUBLE_EQ(estimate.verify_us(1, 100, {}), 100 + 10);
  EXPECT_DOUBLE_EQ(estimate.verify_us(1, 100, {.tokens = 4, .sequences = 1, .longest = 4}), 140 + 10 + 4);
  EXPECT_DOUBLE_EQ(estimate.verify_us(1, 100, {.tokens = 8, .sequences = 1, .longest = 4, .branches = 1}),
                   190 + 10 + 8 + 10 + 5);
}

}  // namespace
}  // namespace millrace
