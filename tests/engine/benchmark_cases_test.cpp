#include <gtest/gtest.h>

#include "engine/measure/benchmark.h"

namespace millrace {
namespace {

constexpr auto kPromptCase = BenchmarkCase::Kind::Prompt, kGenerateCase = BenchmarkCase::Kind::Generate;

TEST(BenchmarkCases, TheCacheIsSizedForTheLargestCaseAndNotForTheLongestOfTheWidest) {
  const std::vector<BenchmarkCase> cases{{kGenerateCase, 100, 1, 10000}, {kGenerateCase, 28, 8, 100}};
  LoadOptions options;
  size_for(options, cases);
  EXPECT_EQ(options.sequences, 8);
  EXPECT_EQ(options.context, 10100);
  EXPECT_EQ(options.kv_tokens, 158 * 64);  // 10100 positions in pages of 64
}

TEST(BenchmarkCases, StepsHoldAsManyPromptsAsHaveRoom) {
  LoadOptions options;
  options.rows = 8192;
  options.sequences = options.logit_rows = 32;
  EXPECT_EQ(prompts_of_step(options, 32, 1024), 8);
  EXPECT_EQ(prompts_of_step(options, 3, 100), 3);
  EXPECT_EQ(prompts_of_step(options, 64, 1), 32);
  EXPECT_EQ(prompts_of_step(options, 4, 20000), 1);
}

TEST(BenchmarkCases, TheLargestAreLeftOutUntilTheRestFits) {
  std::vector<BenchmarkCase> cases;
  for (const int32_t batch : {1, 256, 8, 64}) {
    cases.push_back({kPromptCase, 64, batch, 0});
    cases.push_back({kGenerateCase, 32, batch, 32});
  }
  const auto fitting = [&](int64_t room) {
    return cases_that_fit(cases, {}, [&](const LoadOptions& o) { return o.kv_tokens <= room; });
  };
  const auto batches = [](const std::vector<BenchmarkCase>& of) {
    std::vector<int32_t> all;
    for (const auto& c : of) all.push_back(c.batch);
    return all;
  };
  EXPECT_EQ(batches(fitting(256 * 64).fit), batches(cases));
  EXPECT_EQ(batches(fitting(100 * 64).fit), (std::vector<int32_t>{1, 1, 8, 8, 64, 64}));
  EXPECT_EQ(batches(fitting(100 * 64).too_large), (std::vector<int32_t>{256, 256}));
  EXPECT_EQ(batches(fitting(63 * 64).too_large), (std::vector<int32_t>{256, 256, 64, 64}));
  EXPECT_EQ(batches(fitting(0).fit), (std::vector<int32_t>{1, 1})) << "loading says why the smallest does not fit";
}

}  // namespace
}  // namespace millrace
