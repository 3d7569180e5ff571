// Trees of drafts: whichever branch is right, the texts equal those without drafts, and all pages come back.
#include "engine/drafted_trees.h"
#include "engine/drafts_fixture.h"
#include "fresh_seed.h"

namespace millrace {
namespace {

class DraftBranchesTest : public DraftsTest {
 protected:
  using Guess = DraftedTrees::Guess;

  static EngineOptions tree(DraftedTrees& drafter, int32_t tokens, int32_t width, bool by_cost = false) {
    return {.drafter = &drafter, .draft_tokens = tokens, .draft_width = width, .drafts_by_cost = by_cost};
  }
  DraftedTrees knowing(DraftedTrees::Choose choose, const Make& make, const Answers& answers) const {
    DraftedTrees drafter(vocab_, std::move(choose));
    teach(drafter, make, answers);
    return drafter;
  }
  // Any chain, or none, and any number of right tokens, by the tokens so far.
  static Guess any_chain(std::span<const int32_t> tokens) {
    const auto chance = philox(tokens.size(), static_cast<uint64_t>(tokens.back()));
    return {static_cast<int32_t>(chance[0] % 5), static_cast<int32_t>(chance[1] % 6)};
  }
};

TEST_P(DraftBranchesTest, RightBranchesTakeTheStepsOfRightDrafts) {
  start(with_branches());
  // Around page boundaries, so that the last known token begins, fills and ends a page.
  for (const size_t length : {7u, 14u, 15u, 16u, 17u, 31u, 32u, 33u}) {
    SCOPED_TRACE(length);
    const Make one = [&] { return std::vector<Request>{{prompt(length, 1), {.temperature = 0}, 41}}; };
    const Answers alone = run(one);
    for (const int32_t branch : {1, 2, 3}) {
      DraftedTrees drafter = knowing([&](auto) { return Guess{branch, 4}; }, one, alone);
      EXPECT_EQ(run(one, tree(drafter, 4, 4)), alone) << branch;
      EXPECT_EQ(stats_.steps, 1u + 8u) << "five tokens a step";
      EXPECT_EQ(stats_.drafted_tokens, 8u * 4u * 4u);
      EXPECT_EQ(stats_.accepted_tokens, 32u);
      EXPECT_EQ(stats_.generated_tokens, 41u);
      EXPECT_EQ(drafter.widest, 3);
      EXPECT_EQ(drafter.rows_followed, static_cast<int64_t>(length) + 7 * 5) << "the last step is not followed";
      EXPECT_EQ(drafter.followed_from, branch * 5) << "the hidden states are those of the branch";
    }
  }
}

TEST_P(DraftBranchesTest, UsageCountsEveryDraftToken) {
  start(with_branches());
  const Make one = [&] { return std::vector<Request>{{prompt(9, 1), {.temperature = 0}, 30}}; };
  const Answers alone = run(one);
  DraftedTrees drafter = knowing(any_chain, one, alone);
  Engine engine(*runner_, tree(drafter, 4, 3));
  engine.submit(one().front());
  int32_t accepted = 0, rejected = 0;
  while (engine.step([&](const Emission& e) { accepted = e.accepted_drafts, rejected = e.rejected_drafts; })) {
  }
  EngineStats stats;
  engine.fill(stats);
  EXPECT_GT(accepted, 5);
  EXPECT_EQ(static_cast<uint64_t>(accepted), stats.accepted_tokens);
  EXPECT_EQ(static_cast<uint64_t>(accepted + rejected), stats.drafted_tokens);
}

TEST_P(DraftBranchesTest, GreedyAndSampledTextsStayTheSame) {
  const Make make = [&] {
    const std::vector<SamplingParams> ways{{.temperature = 0},
                                           {.temperature = 0.9f, .seed = 4},
                                           {.temperature = 1, .top_p = 0.8f, .seed = 5},
                                           {.temperature = 1.2f, .top_k = 20, .min_p = 0.02f, .seed = 7},
                                           {.temperature = 1, .typical_p = 0.9f, .seed = 8}};
    std::vector<Request> requests;
    for (const auto& way : ways) {
      const auto i = static_cast<int32_t>(requests.size());
      Request request{prompt(3 + 7 * requests.size(), i), way, 22 + 3 * i};
      if (i % 3 == 1) request.end_tokens = {11 + i, 30 + i, 55, 70, 83};
      requests.push_back(request);
    }
    return requests;
  };
  for (const bool invariant : {true, false}) {
    if (!invariant && GetParam() == Where::Gpu) return;
    start(with_branches(0, invariant));
    const Answers alone = run(make);
    for (const int32_t width : {2, 4}) {
      for (const int32_t tokens : {1, 3, 6}) {
        SCOPED_TRACE(testing::Message() << width << " chains of " << tokens);
        DraftedTrees drafter = knowing(any_chain, make, alone);
        EXPECT_EQ(run(make, tree(drafter, tokens, width)), alone);
        EXPECT_GT(stats_.accepted_tokens, 20u);
        EXPECT_GT(drafter.branches, 20);
      }
    }
  }
}

TEST_P(DraftBranchesTest, ChoicesOfOneRequest) {
  start(with_branches());
  const Make make = [&] {
    Request request{prompt(21, 2), {.temperature = 1, .seed = 5}, 30};
    request.choices = 3;
    return std::vector<Request>{request, {prompt(21, 2), {.temperature = 0}, 40}};
  };
  const Answers alone = run(make);
  DraftedTrees drafter = knowing(any_chain, make, alone);
  EXPECT_EQ(run(make, tree(drafter, 4, 3)), alone);
  EXPECT_GT(drafter.branches, 10);
}

TEST_P(DraftBranchesTest, SomeRequestsKeepOneDraft) {
  start(with_branches());
  std::vector<Request> ways(7, {prompt(9, 2), {.temperature = 0}, 20});
  ways[0].sampling.frequency_penalty = 0.5f;
  ways[1].sampling.repetition_penalty = 1.2f;
  ways[2].sampling.logprobs = 0;
  ways[3].sampling.logit_bias = {{3, 1.5f}};
  ways[4].min_tokens = 3;
  ways[5].draft_tokens = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    const Make make = [&] { return std::vector<Request>{ways[i]}; };
    const Answers alone = run(make);
    DraftedTrees drafter = knowing(any_chain, make, alone);
    EXPECT_EQ(run(make, tree(drafter, 4, 4)), alone) << i;
    EXPECT_EQ(drafter.branches > 0, i == 6) << i;
  }
}

// Branches take the places that sequences leave, and pages that nobody else needs.
TEST_P(DraftBranchesTest, PlacesAndPagesRunOut) {
  const Make make = [&] {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 6; ++i)
      requests.push_back({prompt(20 + 5 * static_cast<size_t>(i), i), {.temperature = 0.9f, .seed = 3}, 60});
    return requests;
  };
  start(with_branches());
  const Answers roomy = run(make);
  for (const int64_t branches : {0, 1, 12}) {
    LoadOptions options = with_branches(160);  // little more than the longest sequence needs
    options.branches = branches;
    start(options);
    DraftedTrees drafter = knowing(any_chain, make, roomy);
    EXPECT_EQ(run(make, tree(drafter, 5, 4)), roomy) << branches;
    EXPECT_GT(stats_.preemptions, 0u);
    EXPECT_GT(drafter.branches, 0) << "a sequence that runs alone has the places of the others";
    engine_.reset();
    EXPECT_EQ(runner_->state().blocks().free(), runner_->state().blocks().size());
  }
}

TEST_P(DraftBranchesTest, ThePrefixTreeHoldsTheChosenBranch) {
  start(with_branches());
  const Request first{prompt(13, 1), {.temperature = 0}, 50};
  Request second = first;
  const Answers answers = run([&] { return std::vector<Request>{first}; }, {.prefix_cache = false});
  const auto& text = answers.at({0, 0}).tokens;
  second.prompt.insert(second.prompt.end(), text.begin(), text.end() - 3);
  second.max_tokens = 20;
  const Answers wanted = run([&] { return std::vector<Request>{second}; }, {.prefix_cache = false});
  const Make make = [&] { return std::vector<Request>{first}; };
  DraftedTrees drafter = knowing(any_chain, make, answers);
  run(make, tree(drafter, 5, 4));
  expect_cached(second, wanted.at({0, 0}).tokens);
}

TEST_P(DraftBranchesTest, AnyOrderOfEvents) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<Request> asked;
  for (int i = 0; i < 30; ++i) {
    Request r{prompt(1 + random() % 90, static_cast<int32_t>(random() % 4)),
              {.temperature = 1, .seed = random() % 3},
              1 + static_cast<int32_t>(random() % 30)};
    r.choices = 1 + static_cast<int32_t>(random() % 2);
    r.draft_tokens = static_cast<int32_t>(random() % 7) - 1;
    if (random() % 3 == 0) r.end_tokens = {5, 6, 7, 8, 9};
    asked.push_back(r);
  }
  const Make make = [&] { return asked; };
  start(with_branches());
  const Answers alone = run(make, {.prefix_cache = false});
  start(with_branches(224));
  DraftedTrees drafter = knowing(any_chain, make, alone);
  const bool by_cost = random() % 2 == 0;
  expect_any_order(random, asked, alone, tree(drafter, 5, 4, by_cost));
}

// The pages of branches come back with the next step, or with the sequence.
TEST_P(DraftBranchesTest, AStepThatThrowsLosesNoPage) {
  start(with_branches());
  const Make one = [&] { return std::vector<Request>{{prompt(18, 1), {.temperature = 0}, 40}}; };
  const Answers alone = run(one);
  for (const bool cancels : {false, true}) {
    DraftedTrees drafter = knowing([](auto) { return Guess{2, 4}; }, one, alone);
    engine_ = std::make_unique<Engine>(*runner_, tree(drafter, 4, 4));
    const RequestId id = engine_->submit(one().front());
    Answer heard;
    const auto hear = [&](const Emission& e) {
      heard.tokens.push_back(e.token);
      heard.finish = e.finish;
    };
    for (int i = 0; i < 2; ++i) engine_->step(hear);
    drafter.throw_in = 1;
    EXPECT_THROW(engine_->step(hear), std::runtime_error);
    if (cancels) {
      engine_->cancel(id);
      EngineStats stats;
      engine_->fill(stats);
      EXPECT_EQ(stats.kv_blocks_used, 0);
      continue;
    }
    while (engine_->step(hear)) {
    }
    EXPECT_EQ(heard, alone.at({0, 0}));
    engine_.reset();
    EXPECT_EQ(runner_->state().blocks().free(), runner_->state().blocks().size());
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, DraftBranchesTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
