// Compares the selections with plain sorting on hard inputs: ties, wide ranges, tiny mass.
#include "sampling/selection.h"
#include "fresh_seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace millrace {
namespace {

struct Case {
  std::vector<float> logits;
  unsigned seed;
};

Case random_case() {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  constexpr size_t kSizes[] = {1, 2, 7, 100, 5000, 20000};
  Case made{std::vector<float>(kSizes[random() % 6]), seed};
  const float scale = std::pow(10.0f, float(random() % 6) - 3.0f);
  const unsigned kind = random() % 6;
  size_t i = 0;
  for (float& x : made.logits) {
    const size_t block = i++ / 64;
    x = std::normal_distribution<float>(0, 1)(random) * scale;
    if (kind == 1) x = std::round(x);                    // many ties
    if (kind == 2) x = 3;                                // only ties
    if (kind == 3 && random() % 3 == 0) x = -kInfinity;  // holes
    if (kind == 4 && block < 3) x += 3 * scale;          // most of the largest values are neighbours
    if (kind == 5 && block % 3 != 1) x = -kInfinity;     // large holes
  }
  return made;
}

// Indices by value, largest first, ties by index.
std::vector<size_t> sorted_indices(const std::vector<float>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  return order;
}

TEST(Selection, TopKIsThatOfSorting) {
  for (int round = 0; round < 200; ++round) {
    const Case c = random_case();
    const size_t k = 1 + c.seed % std::min<size_t>(c.logits.size(), round % 2 ? 50 : 20000);
    std::vector<size_t> expected = sorted_indices(c.logits);
    expected.resize(k);
    std::sort(expected.begin(), expected.end());
    std::vector<float> kept(k, NAN);
    std::vector<int32_t> index(k, -1);
    ASSERT_EQ(gather_top_k(c.logits, k, kept.data(), index.data()), k) << "seed " << c.seed;
    for (size_t i = 0; i < k; ++i) {
      ASSERT_EQ(index[i], expected[i]) << "seed " << c.seed << " k " << k;
      ASSERT_EQ(kept[i], c.logits[expected[i]]);
    }
  }
}

TEST(Selection, TopKLeavesNanOut) {
  std::vector<float> values(10000, NAN);
  std::vector<float> kept(3);
  std::vector<int32_t> index(3);
  EXPECT_EQ(gather_top_k(values, 3, kept.data(), index.data()), 0u);
  values[77] = -kInfinity;
  values[9999] = kInfinity;
  EXPECT_EQ(gather_top_k(values, 3, kept.data(), index.data()), 2u);
  EXPECT_EQ(index[0], 77);
  EXPECT_EQ(index[1], 9999);

  // Fewer values than requested, in fewer blocks.
  std::vector<float> many_kept(40);
  std::vector<int32_t> many_index(40);
  for (size_t i = 0; i < 30; ++i) values[5000 + i] = float(i % 7);
  EXPECT_EQ(gather_top_k(values, 40, many_kept.data(), many_index.data()), 32u);
  EXPECT_EQ(gather_top_k(values, 25, many_kept.data(), many_index.data()), 25u);
  EXPECT_EQ(many_kept[24], kInfinity);
}

TEST(Selection, LikeliestIsTheFirstOfTheLargest) {
  for (int round = 0; round < 100; ++round) {
    const Case c = random_case();
    const size_t expected = sorted_indices(c.logits).front();
    const bool none = c.logits[expected] == -kInfinity;
    ASSERT_EQ(likeliest(c.logits), none ? -1 : static_cast<int32_t>(expected)) << "seed " << c.seed;
  }
  EXPECT_EQ(likeliest(std::vector<float>{NAN, -kInfinity, NAN}), -1);
  EXPECT_EQ(likeliest(std::vector<float>{NAN, 1, 2, NAN, 2}), 2);
}

TEST(Selection, WeightsAreProbabilities) {
  for (int round = 0; round < 50; ++round) {
    Case c = random_case();
    const float temperature = 0.1f + float(c.seed % 100) / 20;
    const double best = *std::max_element(c.logits.begin(), c.logits.end());
    if (std::isinf(best)) continue;
    std::vector<float> weights = c.logits;
    const double total = to_weights(weights, temperature);
    double expected_total = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double expected = std::exp((c.logits[i] - best) / temperature);
      ASSERT_NEAR(weights[i], expected, 2e-5 * expected + 1e-37) << "seed " << c.seed;
      expected_total += expected;
    }
    EXPECT_NEAR(total, expected_total, 1e-5 * expected_total);
  }
}

TEST(Selection, WeightsOfOddLogits) {
  std::vector<float> odd = {NAN, -kInfinity, kInfinity, 3, std::numeric_limits<float>::max()};
  EXPECT_EQ(to_weights(odd, 1), 2);
  EXPECT_EQ(odd, (std::vector<float>{0, 0, 1, 0, 1}));
  std::vector<float> nothing = {NAN, -kInfinity};
  EXPECT_EQ(to_weights(nothing, 1), 0);
  std::vector<float> coldest = {1, 1 + 1e-6f};
  EXPECT_EQ(to_weights(coldest, 1e-38f), 1);
}

// Expects that the kept weights are a prefix of `order` that reaches the target. Within rounding the boundary may fall
// on either side.
void expect_prefix(const std::vector<float>& before, const std::vector<float>& after, const std::vector<size_t>& order,
                   double target, unsigned seed) {
  double mass = 0, total = 0;
  for (const float weight : before) total += weight;
  bool first = true;
  for (const size_t i : order) {
    const bool sure = std::fabs(mass - target) > 1e-6 * total;
    if (before[i] > 0 && (sure || first)) {
      ASSERT_EQ(after[i] != 0, mass < target || first) << "seed " << seed << " index " << i << " p " << target / total;
    }
    ASSERT_TRUE(after[i] == 0 || after[i] == before[i]) << "seed " << seed;
    mass += before[i];
    first = false;
  }
}

std::vector<float> weights_of(const Case& c) {
  std::vector<float> weights = c.logits;
  return to_weights(weights, 1) > 0 ? weights : std::vector<float>{1};
}

double sum(const std::vector<float>& weights) { return std::accumulate(weights.begin(), weights.end(), 0.0); }

TEST(Selection, TopPIsThatOfSorting) {
  for (int round = 0; round < 300; ++round) {
    const Case c = random_case();
    const float p = round % 10 == 0 ? 0 : float(c.seed % 1000) / 1000;
    const std::vector<float> before = weights_of(c);
    std::vector<float> after = before;
    const double total = keep_top_p(after, sum(before), p);
    expect_prefix(before, after, sorted_indices(before), p * sum(before), c.seed);
    EXPECT_NEAR(total, sum(after), 1e-9 * total);
    EXPECT_GT(total, 0);
  }
}

TEST(Selection, TypicalIsThatOfSorting) {
  for (int round = 0; round < 300; ++round) {
    const Case c = random_case();
    const float p = round % 10 == 0 ? 0 : float(c.seed % 1000) / 1000;
    const std::vector<float> before = weights_of(c);
    const double whole = sum(before);
    double entropy = 0;
    for (const float w : before) entropy -= w > 0 ? w / whole * std::log(w / whole) : 0;
    std::vector<float> nearness(before.size(), -kInfinity);
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] > 0) nearness[i] = static_cast<float>(-std::fabs(-std::log(before[i] / whole) - entropy));
    }
    std::vector<float> after = before;
    std::vector<float> scratch(before.size(), NAN);
    const double total = keep_typical(after, whole, p, scratch);
    EXPECT_NEAR(total, sum(after), 1e-9 * total);
    EXPECT_GT(total, 0);
    // The distances differ in their last bits, so compare the largest kept with the smallest dropped distance.
    double kept = 0;
    float worst_kept = kInfinity, best_dropped = -kInfinity;
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] == 0) continue;
      kept += after[i];
      (after[i] > 0 ? worst_kept : best_dropped) =
          after[i] > 0 ? std::min(worst_kept, nearness[i]) : std::max(best_dropped, nearness[i]);
    }
    EXPECT_GE(worst_kept, best_dropped - 1e-4f * (1 + std::fabs(best_dropped))) << "seed " << c.seed << " p " << p;
    EXPECT_GE(kept, p * whole * (1 - 1e-6)) << "seed " << c.seed;
  }
}

TEST(Selection, MinPIsAShareOfTheLargest) {
  std::vector<float> weights = {0.1f, 1, 0.3f, 0.29f};
  EXPECT_FLOAT_EQ(float(keep_min_p(weights, 0.3f)), 1.3f);
  EXPECT_EQ(weights, (std::vector<float>{0, 1, 0.3f, 0}));
}

TEST(Selection, DrawIsTheInverseOfTheRunningSum) {
  for (int round = 0; round < 200; ++round) {
    const Case c = random_case();
    std::vector<float> weights = weights_of(c);
    std::mt19937 random(c.seed);
    for (float& w : weights) w = random() % 3 == 0 ? 0 : w;
    weights[random() % weights.size()] = 1;
    const double total = sum(weights);
    for (const double unit : {0.0, 0.3, std::uniform_real_distribution<double>()(random), 1 - 0x1p-53}) {
      const size_t chosen = draw(weights, total, unit);
      ASSERT_GT(weights[chosen], 0) << "seed " << c.seed;
      double below = 0;
      for (size_t i = 0; i < chosen; ++i) below += weights[i];
      EXPECT_LE(below, unit * total + 1e-9 * total) << "seed " << c.seed;
      EXPECT_GE(below + weights[chosen], unit * total - 1e-9 * total) << "seed " << c.seed;
    }
  }
}

}  // namespace
}  // namespace millrace
