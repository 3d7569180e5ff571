#include "engine/measure/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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

}  // namespace
}  // namespace millrace
