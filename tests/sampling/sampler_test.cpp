// Compares draws with the distribution of a straightforward reference of the processors, and tests extreme parameters.
#include "sampling/sampler.h"
#include "fresh_seed.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "count_allocations.h"
#include "sampling/selection.h"

namespace millrace {
namespace {

// Tokens before the draw.
struct History {
  std::vector<int32_t> prompt, answer;
};

using Probabilities = std::vector<double>;

Probabilities softmax(const std::vector<double>& logits) {
  const double best = *std::max_element(logits.begin(), logits.end());
  Probabilities p;
  for (const double x : logits) p.push_back(std::exp(x - best));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

// Sets all logits to -infinity except the first tokens of `order` up to a probability of `mass`.
void keep_mass(std::vector<double>& logits, const std::vector<size_t>& order, double mass) {
  const Probabilities p = softmax(logits);
  double sum = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    if (rank > 0 && sum >= mass) logits[order[rank]] = -INFINITY;
    sum += p[order[rank]];
  }
}

template <class Value>
std::vector<size_t> order_by(size_t count, Value value) {  // largest first
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return value(a) > value(b); });
  return order;
}

void penalise(std::vector<double>& logits, const SamplingParams& params, const History& history) {
  std::vector<int32_t> said = history.prompt;
  said.insert(said.end(), history.answer.begin(), history.answer.end());
  if (params.repetition_window > 0 && said.size() > size_t(params.repetition_window)) {
    said.erase(said.begin(), said.end() - params.repetition_window);
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    if (std::count(said.begin(), said.end(), token) > 0) {
      logits[i] = logits[i] > 0 ? logits[i] / params.repetition_penalty : logits[i] * params.repetition_penalty;
    }
    const auto count = std::count(history.answer.begin(), history.answer.end(), token);
    logits[i] -= params.frequency_penalty * double(count) + (count > 0 ? params.presence_penalty : 0);
  }
}

Probabilities exact_distribution(const std::vector<float>& given, const SamplingParams& params,
                                 const History& history) {
  std::vector<double> logits(given.begin(), given.end());
  penalise(logits, params, history);
  for (const auto& [token, bias] : params.logit_bias) logits[size_t(token)] += bias;
  for (double& x : logits) x /= params.temperature;
  const size_t n = logits.size();
  if (params.top_k > 0) {
    const auto order = order_by(n, [&](size_t i) { return logits[i]; });
    for (size_t rank = size_t(params.top_k); rank < n; ++rank) logits[order[rank]] = -INFINITY;
  }
  if (params.top_p < 1) keep_mass(logits, order_by(n, [&](size_t i) { return logits[i]; }), params.top_p);
  if (params.min_p > 0) {
    const Probabilities p = softmax(logits);
    const double least = params.min_p * *std::max_element(p.begin(), p.end());
    for (size_t i = 0; i < n; ++i) logits[i] = p[i] < least ? -INFINITY : logits[i];
  }
  if (params.typical_p < 1) {
    const Probabilities p = softmax(logits);
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    const auto nearness = [&](size_t i) { return p[i] > 0 ? -std::fabs(-std::log(p[i]) - entropy) : -INFINITY; };
    keep_mass(logits, order_by(n, nearness), params.typical_p);
  }
  return softmax(logits);
}

// Standard deviations of the chi-square statistic above its expectation (Wilson and Hilferty). Cells with an expected
// count below five are merged.
double chi_square_excess(const std::vector<int>& counts, const Probabilities& p, int draws) {
  double statistic = 0, rest_expected = 0, rest_count = 0;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    if (p[i] * draws >= 5) {
      add(counts[i], p[i] * draws);
    } else {
      rest_expected += p[i] * draws;
      rest_count += counts[i];
    }
  }
  if (rest_expected >= 5) add(rest_count, rest_expected);
  const double freedom = std::max(1, cells - 1), spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

// Makes the sampler generate these tokens for any parameters: all other logits are -infinity.
void force(Sampler& sampler, const std::vector<int32_t>& tokens, size_t vocab) {
  for (const int32_t token : tokens) {
    std::vector<float> logits(vocab, -kInfinity);
    logits[size_t(token)] = 0;
    ASSERT_EQ(sampler.sample(logits), token);
  }
}

void expect_distribution(const SamplingParams& base, const std::vector<float>& logits, const History& history,
                         const std::string& what) {
  constexpr int kDraws = 5000;
  const Probabilities p = exact_distribution(logits, base, history);
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    SamplingParams params = base;
    params.seed = base.seed + uint64_t(i);
    Sampler sampler(params, int32_t(logits.size()));
    sampler.observe_prompt(history.prompt);
    force(sampler, history.answer, logits.size());
    std::vector<float> copy = logits;
    const int32_t token = sampler.sample(copy);
    ASSERT_GE(token, 0);
    ASSERT_LT(size_t(token), logits.size());
    ASSERT_GT(p[size_t(token)], 0) << what << ": token " << token << " cannot be";
    ++counts[size_t(token)];
  }
  EXPECT_LT(chi_square_excess(counts, p, kDraws), 5) << what;
}

std::vector<float> random_logits(std::mt19937& random, size_t vocab) {
  std::vector<float> logits(vocab);
  for (float& x : logits) x = std::normal_distribution<float>(0, 2)(random);
  return logits;
}

TEST(Sampler, EachProcessorAloneHasItsDistribution) {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  const History history = {{1, 1, 2, 3, 5, 5}, {5, 7, 7, 7}};
  struct Named {
    const char* name;
    SamplingParams params;
  };
  std::vector<Named> cases = {{"plain", {}}};
  const auto add = [&](const char* name, auto set) {
    cases.push_back({name, {}});
    set(cases.back().params);
  };
  add("cold", [](SamplingParams& p) { p.temperature = 0.3f; });
  add("hot", [](SamplingParams& p) { p.temperature = 3; });
  add("top-k", [](SamplingParams& p) { p.top_k = 5; });
  add("top-p", [](SamplingParams& p) { p.top_p = 0.7f; });
  add("min-p", [](SamplingParams& p) { p.min_p = 0.2f; });
  add("typical", [](SamplingParams& p) { p.typical_p = 0.6f; });
  add("repetition", [](SamplingParams& p) { p.repetition_penalty = 1.8f; });
  add("repetition below one", [](SamplingParams& p) { p.repetition_penalty = 0.5f; });
  add("repetition in a window", [](SamplingParams& p) { p.repetition_penalty = 1.8f, p.repetition_window = 3; });
  add("frequency", [](SamplingParams& p) { p.frequency_penalty = 0.7f; });
  add("presence", [](SamplingParams& p) { p.presence_penalty = -1.5f; });
  add("bias", [](SamplingParams& p) { p.logit_bias = {{0, 2.5f}, {4, -100.0f}, {4, 99.0f}}; });
  for (auto& [name, params] : cases) {
    params.seed = random();
    expect_distribution(params, random_logits(random, 24), history, fmt::format("{}, seed {}", name, seed));
  }
}

TEST(Sampler, CombinationsHaveTheirDistribution) {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  const auto unit = [&] { return std::uniform_real_distribution<float>(0, 1)(random); };
  const auto maybe = [&](auto& field, auto value) {
    if (random() % 2 == 0) field = value;
  };
  for (int round = 0; round < 12; ++round) {
    SamplingParams p;
    p.seed = random();
    p.temperature = 0.3f + 2 * unit();
    maybe(p.top_k, 1 + int(random() % 30));
    maybe(p.top_p, 0.2f + 0.8f * unit());
    maybe(p.min_p, 0.4f * unit());
    maybe(p.typical_p, 0.2f + 0.8f * unit());
    maybe(p.repetition_penalty, 0.7f + unit());
    maybe(p.repetition_window, int(random() % 8));
    maybe(p.frequency_penalty, unit() - 0.5f);
    maybe(p.presence_penalty, unit() - 0.5f);
    maybe(p.logit_bias, decltype(p.logit_bias){{int32_t(random() % 20), 2 * unit()}});
    History history;
    for (unsigned i = random() % 10; i > 0; --i) history.prompt.push_back(int32_t(random() % 20));
    for (unsigned i = random() % 10; i > 0; --i) history.answer.push_back(int32_t(random() % 20));
    expect_distribution(p, random_logits(random, 20), history, fmt::format("round {}, seed {}", round, seed));
  }
}

TEST(Sampler, ALargeVocabularyIsDrawnFromAsASmallOne) {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  constexpr size_t kVocab = 50000;
  std::vector<float> logits(kVocab, -20);
  for (int i = 0; i < 12; ++i) logits[random() % kVocab] = std::normal_distribution<float>(0, 1)(random);
  for (int kind = 0; kind < 3; ++kind) {
    SamplingParams params;
    params.seed = random();
    if (kind == 1) params.top_k = 8;
    if (kind == 2) params.top_p = 0.8f;
    const Probabilities p = exact_distribution(logits, params, {});
    Sampler sampler(params, kVocab);
    std::vector<int> counts(kVocab, 0);
    constexpr int kDraws = 1500;
    for (int i = 0; i < kDraws; ++i) {
      std::vector<float> copy = logits;
      ++counts[size_t(sampler.sample(copy))];
    }
    EXPECT_LT(chi_square_excess(counts, p, kDraws), 5) << "seed " << seed << " kind " << kind;
  }
}

int32_t sample_once(const SamplingParams& params, std::vector<float> logits, std::vector<uint32_t> mask = {}) {
  Sampler sampler(params, int32_t(logits.size()));
  return sampler.sample(logits, mask);
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestOfEquals) {
  SamplingParams greedy;
  greedy.temperature = 0;
  EXPECT_EQ(sample_once(greedy, {1, 3, 2, 3}), 1);
  EXPECT_EQ(sample_once(greedy, {-kInfinity, -5, NAN}), 1);
  EXPECT_EQ(sample_once(greedy, {0, kInfinity, kInfinity}), 1);
  greedy.logit_bias = {{2, 5.0f}};
  EXPECT_EQ(sample_once(greedy, {1, 3, 2, 3}), 2);
}

TEST(Sampler, FiltersThatLeaveOneTokenLeaveTheLowestOfTheLargest) {
  SamplingParams top_p, top_k, min_p;
  top_p.top_p = 0;
  top_k.top_k = 1;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    top_p.seed = top_k.seed = seed;
    EXPECT_EQ(sample_once(top_p, {1, 3, 2, 3}), 1);
    EXPECT_EQ(sample_once(top_k, {1, 3, 2, 3}), 1);
  }
  SamplingParams typical;
  typical.typical_p = 0;
  EXPECT_GE(sample_once(typical, {1, 3, 2, 3}), 0);
}

std::vector<SamplingParams> all_kinds() {
  std::vector<SamplingParams> kinds(7);
  kinds[1].temperature = 0;
  kinds[2].top_k = 3;
  kinds[3].top_p = 0.9f;
  kinds[4].min_p = 0.1f;
  kinds[5].typical_p = 0.9f;
  kinds[6] = {.temperature = 0.5f,
              .top_k = 3,
              .top_p = 0.9f,
              .min_p = 0.1f,
              .typical_p = 0.9f,
              .repetition_penalty = 2,
              .frequency_penalty = 1,
              .presence_penalty = 1,
              .logit_bias = {{0, 1.0f}},
              .logprobs = 5};
  return kinds;
}

TEST(Sampler, OneTokenOrOnePossibilityIsTaken) {
  for (const SamplingParams& params : all_kinds()) {
    EXPECT_EQ(sample_once(params, {0}), 0);
    EXPECT_EQ(sample_once(params, {-kInfinity}), 0);
    std::vector<float> logits(300, -kInfinity);
    logits[123] = -1e30f;
    EXPECT_EQ(sample_once(params, logits), 123);
    logits[7] = NAN;
    EXPECT_EQ(sample_once(params, logits), 123);
  }
}

TEST(Sampler, OddLogitsNeverLeadOutOfTheVocabulary) {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  const float odd[] = {NAN, kInfinity, -kInfinity, 0, -0.0f, 1e38f, -1e38f, 3e-39f, 1};
  for (const SamplingParams& kind : all_kinds()) {
    for (int round = 0; round < 200; ++round) {
      SamplingParams params = kind;
      params.seed = random();
      const size_t vocab = 1 + random() % 70;
      Sampler sampler(params, int32_t(vocab));
      for (int step = 0; step < 4; ++step) {
        std::vector<float> logits(vocab);
        for (float& x : logits) x = odd[random() % 9];
        const int32_t token = sampler.sample(logits);
        ASSERT_GE(token, 0) << "seed " << seed;
        ASSERT_LT(size_t(token), vocab) << "seed " << seed;
      }
    }
  }
}

TEST(Sampler, AMaskForbids) {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  for (const SamplingParams& kind : all_kinds()) {
    for (int round = 0; round < 100; ++round) {
      SamplingParams params = kind;
      params.seed = random();
      const size_t vocab = 1 + random() % 100;
      std::vector<uint32_t> mask((vocab + 31) / 32, 0);
      const size_t always = random() % vocab;
      for (size_t i = 0; i < vocab; ++i) {
        if (i == always || random() % 4 == 0) mask[i / 32] |= 1u << (i % 32);
      }
      std::vector<float> logits = random_logits(random, vocab);
      if (round % 5 == 0) std::fill(logits.begin(), logits.end(), -kInfinity);
      const int32_t token = sample_once(params, logits, mask);
      EXPECT_TRUE(mask[size_t(token) / 32] >> (token % 32) & 1) << "seed " << seed;
    }
  }
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  std::mt19937 random(fresh_seed());
  const std::vector<float> logits = random_logits(random, 500);
  const auto tokens_of = [&](uint64_t seed) {
    SamplingParams params;
    params.seed = seed;
    Sampler sampler(params, 500);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> copy = logits;
      tokens.push_back(sampler.sample(copy));
    }
    return tokens;
  };
  EXPECT_EQ(tokens_of(42), tokens_of(42));
  EXPECT_NE(tokens_of(42), tokens_of(43));
}

TEST(Sampler, LogprobsAreOfTheModelsOwnDistribution) {
  const unsigned seed = fresh_seed();
  std::mt19937 random(seed);
  SamplingParams params = {.temperature = 0.2f, .top_k = 4, .logit_bias = {{9, 50.0f}}, .logprobs = 5};
  Sampler sampler(params, 100);
  const std::vector<float> logits = random_logits(random, 100);
  std::vector<float> copy = logits;
  const int32_t token = sampler.sample(copy);
  EXPECT_EQ(token, 9);
  const Probabilities p = exact_distribution(logits, {}, {});
  const TokenLogprobs& report = *sampler.logprobs();
  EXPECT_EQ(report.chosen.token, 9);
  EXPECT_NEAR(report.chosen.logprob, std::log(p[9]), 1e-4);
  const auto order = order_by(100, [&](size_t i) { return p[i]; });
  ASSERT_EQ(report.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(report.top[i].token, int32_t(order[i])) << "seed " << seed;
    EXPECT_NEAR(report.top[i].logprob, std::log(p[order[i]]), 1e-4) << "seed " << seed;
  }
  EXPECT_EQ(Sampler({}, 100).logprobs(), nullptr);
}

TEST(Sampler, LogprobsOfImpossibleTokensAreNumbers) {
  SamplingParams params = {.temperature = 0, .logit_bias = {{0, 100.0f}}, .logprobs = 20};
  for (std::vector<float> logits : {std::vector<float>{-1e30f, 5, NAN, -kInfinity, kInfinity}, {NAN, NAN}}) {
    Sampler sampler(params, int32_t(logits.size()));
    sampler.sample(logits);
    for (const TokenLogprob& each : sampler.logprobs()->top) EXPECT_TRUE(std::isfinite(each.logprob));
    EXPECT_TRUE(std::isfinite(sampler.logprobs()->chosen.logprob));
  }
}

TEST(Sampler, DoesNotAllocateOnceItIsMade) {
  std::mt19937 random(1);
  for (const SamplingParams& params : all_kinds()) {
    Sampler sampler(params, 1000);
    std::vector<float> logits = random_logits(random, 1000), copy = logits;
    const std::vector<uint32_t> mask(32, 0xfffffff0u);
    const int64_t before = allocations();
    for (int i = 0; i < 100; ++i) {
      std::copy(logits.begin(), logits.end(), copy.begin());
      sampler.sample(copy, mask);
    }
    EXPECT_EQ(allocations(), before);
  }
}

}  // namespace
}  // namespace millrace
