// Compares draws from a sampler's description for a device with the sampler's own draws.
#include <gtest/gtest.h>

#include <random>

#include "fresh_seed.h"
#include "kernels/kernel_set.h"
#include "sampling/sampler.h"

namespace millrace {
namespace {

int32_t draw_described(const Sampler& sampler, std::vector<float> logits) {
  std::vector<LogitChange> changes(1000);
  const auto row = sampler.describe(changes);
  EXPECT_TRUE(row.has_value());
  int32_t id = -2;
  const auto cols = static_cast<int64_t>(logits.size());
  const Matrix matrix{DType::F32, 1, cols, cols, reinterpret_cast<std::byte*>(logits.data())};
  cpu_kernels().of<SampleOp>().front()->run({matrix, &*row, changes.data(), &id}, {});
  return id;
}

// Rounding may move a draw on the boundary between two tokens, but far less often than once in a thousand draws.
TEST(Describe, DrawsWhatTheSamplerDraws) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::uniform_real_distribution<float> unit;
  const int32_t vocab = 300;
  int draws = 0, same = 0;
  for (int i = 0; i < 400; ++i) {
    SamplingParams p{.temperature = i % 7 == 0 ? 0 : 0.2f + 2 * unit(random), .seed = random()};
    if (i % 2 == 0) p.top_k = 1 + static_cast<int>(random() % 400);
    if (i % 3 == 0) p.top_p = unit(random);
    if (i % 5 == 0) p.min_p = 0.3f * unit(random);
    if (i % 4 == 0) p.repetition_penalty = 0.7f + unit(random);
    if (i % 6 == 0) p.frequency_penalty = unit(random), p.presence_penalty = unit(random) - 0.5f;
    if (i % 8 == 0) p.logit_bias = {{3, 2.0f}, {7, -100.0f}};
    Sampler sampler(p, vocab);
    sampler.observe_prompt(std::vector<int32_t>{1, 2, 3, 3, 50});
    for (int step = 0; step < 10; ++step) {
      std::vector<float> logits(vocab);
      for (float& x : logits) x = std::round(normal(random) * 4) / 4;  // with ties
      const int32_t described = draw_described(sampler, logits);
      same += described == sampler.sample(logits) ? 1 : 0;
      ++draws;
    }
  }
  EXPECT_GE(same, draws - draws / 1000);
}

TEST(Describe, LeavesToTheHostWhatItCannotSay) {
  std::vector<LogitChange> changes(10);
  EXPECT_FALSE(Sampler({.logprobs = 0}, 50).describe(changes).has_value());
  EXPECT_FALSE(Sampler({.typical_p = 0.5f}, 50).describe(changes).has_value());
  Sampler wide({.repetition_penalty = 1.1f}, 50);
  wide.observe_prompt(std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_FALSE(wide.describe(changes).has_value());
}

TEST(Describe, TookCountsAsSampled) {
  const SamplingParams p{.frequency_penalty = 1, .seed = 5};
  Sampler a(p, 20), b(p, 20);
  for (int step = 0; step < 30; ++step) {
    std::vector<float> logits(20);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 5) * 0.3f;
    const int32_t drawn = draw_described(a, logits);
    ASSERT_EQ(drawn, b.sample(logits)) << step;
    a.took(drawn);
  }
}

}  // namespace
}  // namespace millrace
