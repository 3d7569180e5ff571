// Drafts by look-up: what is found, and texts that stay the same on every golden model.
#include "engine/lookup_drafter.h"

#include <numeric>

#include "engine/drafts_fixture.h"

namespace millrace {
namespace {

std::vector<int32_t> draft_for(const std::vector<int32_t>& tokens, size_t most) {
  std::vector<int32_t> draft(most, -7);
  const int32_t given = LookupDrafter().draft(tokens, draft);
  draft.resize(static_cast<size_t>(given));
  return draft;
}

TEST(Lookup, ProposesTheTokensBehindTheLongestMatch) {
  //                      longest match       latest match      end
  EXPECT_EQ(draft_for({1, 2, 3, 4, 5, 6, 9, 2, 3, 4, 7, 8, 1, 2, 3, 4}, 2), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(draft_for({0, 2, 3, 4, 5, 6, 9, 2, 3, 4, 7, 8, 1, 2, 3, 4}, 2), (std::vector<int32_t>{7, 8}));
}

TEST(Lookup, FindsNothingInShortMatches) {
  EXPECT_TRUE(draft_for({1, 2, 3, 4, 2, 3}, 4).empty());
  EXPECT_TRUE(draft_for({5}, 4).empty());
  EXPECT_TRUE(draft_for({}, 4).empty());
  EXPECT_TRUE(draft_for({1, 2, 3, 9, 1, 2, 3}, 0).empty());
}

TEST(Lookup, ContinuesAPeriod) {
  EXPECT_EQ(draft_for({1, 2, 3, 1, 2, 3, 1}, 8), (std::vector<int32_t>{2, 3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(draft_for({4, 4, 4, 4}, 3), (std::vector<int32_t>{4, 4, 4}));
}

TEST(Lookup, SearchesLongTexts) {
  std::vector<int32_t> tokens(20000);
  std::iota(tokens.begin(), tokens.end(), 0);
  tokens.insert(tokens.end(), {3, 4, 5});
  EXPECT_EQ(draft_for(tokens, 3), (std::vector<int32_t>{6, 7, 8}));
}

class LookupTest : public DraftsTest {};

// Greedy texts with look-up drafts, and with drafts that are all right or all wrong, on every kind of model.
TEST_P(LookupTest, GreedyTextsOfAllGoldensStayTheSame) {
  uint64_t drafted = 0, accepted = 0;
  const auto goldens = all_goldens();
  const size_t spacing = GetParam() == Where::Cpu ? 1 : 4;
  for (size_t i = 0; i < goldens.size(); i += spacing) {
    const Golden& golden = goldens[i];
    if (GetParam() == Where::Gpu && golden.name == "deepseek_v3_halves") continue;  // refused on a GPU
    SCOPED_TRACE(golden.name);
    LoadOptions options{.threads = 1, .exact = true, .context = 64, .sequences = 2, .rows = 32, .logit_rows = 24};
    options.block_size = 16;
    start(options, golden.name);
    const Make make = [&] {
      std::vector<Request> requests;
      for (const int32_t period : {5, 3}) {
        std::vector<int32_t> tokens(16);
        for (int32_t i = 0; i < 16; ++i) tokens[static_cast<size_t>(i)] = 3 + 7 * (i % period);
        requests.push_back({tokens, {.temperature = 0}, 40});
      }
      return requests;
    };
    const Answers alone = run(make);
    LookupDrafter lookup;
    EXPECT_EQ(run(make, {.drafter = &lookup, .draft_tokens = 7}), alone);
    drafted += stats_.drafted_tokens;
    accepted += stats_.accepted_tokens;
    for (const Kind kind : {Kind::Right, Kind::Wrong}) {
      KnownTexts known = knowing(kind, make, alone);
      EXPECT_EQ(run(make, {.drafter = &known, .draft_tokens = 7}), alone) << static_cast<int>(kind);
      EXPECT_EQ(stats_.accepted_tokens > 0, kind == Kind::Right);
    }
  }
  EXPECT_GT(accepted, 200u) << "random models repeat themselves";
  EXPECT_GT(drafted, accepted);
}

// The lengths of drafts do not depend on the clock: a repeated request takes the same steps.
TEST_P(LookupTest, ARepeatedRequestTakesTheSameSteps) {
  start(with_logit_rows());
  const Make one = [&] { return std::vector<Request>{{prompt(30, 4), {.temperature = 0}, 80}}; };
  LookupDrafter lookup;
  EngineOptions options;
  options.draft_with(lookup);
  const Answers first = run(one, options);
  const EngineStats before = stats_;
  EXPECT_EQ(run(one, options), first);
  EXPECT_EQ(stats_.steps, before.steps);
  EXPECT_EQ(stats_.drafted_tokens, before.drafted_tokens);
  EXPECT_EQ(stats_.steps_ahead, before.steps_ahead);
}

// Steps run ahead while no draft is found.
TEST_P(LookupTest, StepsRunAheadBetweenLookups) {
  start(with_logit_rows());
  const Make make = [&] {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 3; ++i) requests.push_back({prompt(9, i), {.temperature = 0}, 64});
    return requests;
  };
  const Answers alone = run(make);
  KnownTexts none(Kind::None, vocab_);
  EXPECT_EQ(run(make, {.drafter = &none, .drafts_by_cost = true}), alone);
  EXPECT_GT(none.asked(), 10);
  if (!runner_->runs_ahead()) return;
  EXPECT_LT(none.asked(), 3 * 16);
  EXPECT_GT(stats_.steps_ahead, 48u);
}

TEST_P(LookupTest, EmissionsCountDrafts) {
  start(with_logit_rows());
  const Request request{prompt(9, 2), {.temperature = 0}, 41};
  const Answers alone = run([&] { return std::vector<Request>{request}; });
  for (const Kind kind : {Kind::Right, Kind::Wrong, Kind::HalfRight}) {
    KnownTexts drafter = knowing(
        kind, [&] { return std::vector<Request>{request}; }, alone);
    Engine engine(*runner_, {.drafter = &drafter});
    engine.submit(request);
    int32_t accepted = 0, rejected = 0;
    while (engine.step([&](const Emission& e) {
      EXPECT_GE(e.accepted_drafts, accepted);
      accepted = e.accepted_drafts;
      rejected = e.rejected_drafts;
    })) {
    }
    EngineStats stats;
    engine.fill(stats);
    EXPECT_EQ(static_cast<uint64_t>(accepted), stats.accepted_tokens);
    EXPECT_EQ(static_cast<uint64_t>(accepted + rejected), stats.drafted_tokens);
    EXPECT_EQ(accepted > 0, kind != Kind::Wrong);
    EXPECT_EQ(rejected > 0, kind != Kind::Right);
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, LookupTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
