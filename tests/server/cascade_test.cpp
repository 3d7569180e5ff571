// When a cascade keeps the small model's answer, and the threshold for a wanted share.
#include "server/cascade.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "../fresh_seed.h"

namespace millrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t escalated(const Cascade& cascade, const std::vector<double>& means) {
  return static_cast<size_t>(
      std::count_if(means.begin(), means.end(), [&](double mean) { return !cascade.keeps(mean); }));
}

TEST(Cascade, Keeps) {
  const Cascade cascade{.threshold = -0.5};
  EXPECT_TRUE(cascade.keeps(-0.49));
  EXPECT_FALSE(cascade.keeps(-0.5));
  EXPECT_FALSE(cascade.keeps(-3));
  EXPECT_FALSE(cascade.keeps(std::nullopt));
}

TEST(Cascade, ExtremesSendAllToOneModel) {
  EXPECT_FALSE(Cascade{.threshold = 0}.keeps(0));
  EXPECT_TRUE(Cascade{.threshold = -kInfinity}.keeps(-1e30));
  EXPECT_FALSE(Cascade{.threshold = -kInfinity}.keeps(std::nullopt)) << "an empty answer is none";
}

TEST(Cascade, ThresholdSendsTheShareOfItsPrompts) {
  std::mt19937_64 random(fresh_seed());
  std::exponential_distribution<double> draw(2);
  for (size_t count = 1; count < 60; ++count) {
    std::vector<double> means(count);
    for (double& mean : means) mean = -draw(random);
    for (const double share : {0.0, 0.1, 0.3, 0.5, 0.77, 1.0}) {
      const Cascade cascade{.threshold = cascade_threshold(means, share)};
      EXPECT_EQ(escalated(cascade, means), static_cast<size_t>(std::lround(share * static_cast<double>(count))))
          << count << " answers, share " << share;
    }
  }
}

TEST(Cascade, ThresholdLiesBetweenTwoAnswers) {
  EXPECT_DOUBLE_EQ(cascade_threshold({-1, -4, -2, -3}, 0.5), -2.5);
  EXPECT_DOUBLE_EQ(cascade_threshold({-1, -kInfinity, -kInfinity, -3}, 0.75), -2);
}

TEST(Cascade, EmptyAnswersGoToTheLargeModelAnyway) {
  const std::vector<double> means{-kInfinity, -kInfinity, -1, -2};
  EXPECT_EQ(cascade_threshold(means, 0.25), -kInfinity);
  EXPECT_EQ(escalated({.threshold = cascade_threshold(means, 0.25)}, means), 2U);
}

}  // namespace
}  // namespace millrace
