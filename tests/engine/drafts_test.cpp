// Several pending tokens per sequence: with any drafter the texts equal those without one.
#include "engine/drafts_fixture.h"

#include <future>
#include <set>

#include "engine/completion.h"
#include "engine/service.h"
#include "fresh_seed.h"

namespace millrace {
namespace {

TEST_P(DraftsTest, RightDraftsTakeFewerSteps) {
  start(with_logit_rows());
  const Make one = [&] { return std::vector<Request>{{prompt(7, 1), {.temperature = 0}, 41}}; };
  const Answers alone = run(one);
  EXPECT_EQ(stats_.steps, 41u) << "the prompt's step gives the first token";
  KnownTexts right = knowing(Kind::Right, one, alone), wrong = knowing(Kind::Wrong, one, alone);
  EXPECT_EQ(run(one, {.drafter = &right, .draft_tokens = 4}), alone);
  EXPECT_EQ(stats_.steps, 1u + 8u) << "five tokens a step";
  EXPECT_EQ(stats_.drafted_tokens, 32u);
  EXPECT_EQ(stats_.accepted_tokens, 32u);
  EXPECT_EQ(stats_.generated_tokens, 41u);
  EXPECT_EQ(run(one, {.drafter = &wrong, .draft_tokens = 4}), alone);
  EXPECT_EQ(stats_.steps, 41u);
  EXPECT_GT(stats_.drafted_tokens, 100u);
  EXPECT_EQ(stats_.accepted_tokens, 0u);
}

// More requests than can run at the same time, so that decodes with drafts of different lengths share steps with
// prompts.
TEST_P(DraftsTest, GreedyAndSampledTextsStayTheSame) {
  const Make make = [&] {
    std::vector<SamplingParams> ways{{.temperature = 0},
                                     {.temperature = 0.9f, .seed = 4},
                                     {.temperature = 1, .top_p = 0.8f, .seed = 5},
                                     {.temperature = 0, .repetition_penalty = 1.3f},
                                     {.temperature = 1, .frequency_penalty = 0.7f, .presence_penalty = 0.4f, .seed = 6},
                                     {.temperature = 1.2f, .top_k = 20, .min_p = 0.02f, .seed = 7},
                                     {.temperature = 1, .typical_p = 0.9f, .seed = 8},
                                     {.temperature = 0.8f, .logit_bias = {{3, 2.5f}, {40, -4}}, .seed = 9},
                                     {.temperature = 0, .logprobs = 2},
                                     {.temperature = 1, .repetition_penalty = 1.2f, .seed = 11, .logprobs = 0}};
    std::vector<Request> requests;
    for (auto& way : ways) {
      const auto i = static_cast<int32_t>(requests.size());
      Request request{prompt(3 + 5 * requests.size(), i), way, 12 + 3 * i};
      if (i % 3 == 1) request.end_tokens = {11 + i, 30 + i, 55, 70, 83};
      if (i % 4 == 1) request.min_tokens = 9;
      if (i == 5) request.draft_tokens = 2;
      if (i == 6) request.draft_tokens = 0;
      requests.push_back(request);
    }
    return requests;
  };
  for (const bool invariant : {true, false}) {
    start(with_logit_rows(0, invariant));
    if (!invariant) {  // logits are then equal only within rounding: compare tokens, not log-probabilities
      if (GetParam() == Where::Gpu) return;
      const Answers alone = run(make);
      KnownTexts drafter = knowing(Kind::HalfRight, make, alone);
      for (const auto& [key, answer] : run(make, {.drafter = &drafter})) EXPECT_EQ(answer.tokens, alone.at(key).tokens);
      EXPECT_GT(stats_.accepted_tokens, 20u);
      continue;
    }
    expect_same_texts(make);
  }
}

TEST_P(DraftsTest, EndTokensAndLimitsInsideOfADraft) {
  start(with_logit_rows());
  const Make free = [&] { return std::vector<Request>{{prompt(9, 2), {.temperature = 0.9f, .seed = 1}, 30}}; };
  const auto text = run(free).at({0, 0}).tokens;
  for (const size_t end : {3u, 4u, 5u, 6u, 7u}) {  // at every position of a draft
    const Make stopped = [&] {
      Request request = free().front();
      request.end_tokens = {text[end]};
      return std::vector<Request>{request};
    };
    const Answers alone = run(stopped);
    EXPECT_EQ(alone.at({0, 0}).finish, FinishReason::Stop);
    const Make cut = [&] {
      Request request = free().front();
      request.max_tokens = static_cast<int32_t>(end);
      return std::vector<Request>{request};
    };
    for (const Kind kind : {Kind::Right, Kind::TooLong, Kind::HalfRight}) {
      KnownTexts drafter(kind, vocab_);
      auto whole = free().front().prompt;
      whole.insert(whole.end(), text.begin(), text.end());  // continues past the end
      drafter.know(whole);
      EXPECT_EQ(run(stopped, {.drafter = &drafter}), alone) << end;
      const Answer limited = run(cut, {.drafter = &drafter}).at({0, 0});
      EXPECT_EQ(limited.tokens, std::vector<int32_t>(text.begin(), text.begin() + static_cast<ptrdiff_t>(end)));
      EXPECT_EQ(limited.finish, FinishReason::Length);
    }
  }
}

TEST_P(DraftsTest, TheContextEndsInsideOfADraft) {
  start(with_logit_rows());
  expect_same_texts([&] { return std::vector<Request>{{prompt(101, 3), {.temperature = 0}, 0}}; });
}

TEST_P(DraftsTest, ChoicesOfOneRequest) {
  start(with_logit_rows());
  expect_same_texts([&] {
    Request request{prompt(21, 2), {.temperature = 1, .seed = 5}, 14};
    request.choices = 7;  // more than can run at the same time
    return std::vector<Request>{request, {prompt(30, 5), {.temperature = 0}, 20}};
  });
}

TEST_P(DraftsTest, ChoicesWithScoredPromptsThatWait) {
  start(with_logit_rows());
  expect_same_texts([&] {
    Request request{prompt(21, 2), {.temperature = 1, .seed = 5}, 10};
    request.choices = 7;
    request.prompt_logprobs = 2;
    return std::vector<Request>{request};
  });
}

TEST_P(DraftsTest, StreamsGiveWayAndComeBack) {
  const Make make = [&] {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 6; ++i)
      requests.push_back({prompt(20 + 5 * static_cast<size_t>(i), i), {.temperature = 0.9f, .seed = 3}, 60});
    return requests;
  };
  start(with_logit_rows());
  const Answers roomy = run(make);
  start(with_logit_rows(160));  // little more than the longest sequence needs
  for (const Kind kind : KnownTexts::kAll) {
    KnownTexts drafter = knowing(kind, make, roomy);
    EXPECT_EQ(run(make, {.drafter = &drafter, .draft_tokens = 6}), roomy) << static_cast<int>(kind);
    EXPECT_GT(stats_.preemptions, 0u);
    engine_.reset();
    EXPECT_EQ(runner_->state().blocks().free(), runner_->state().blocks().size());
  }
}

// Rows of rejected drafts lie in pages that enter the prefix tree later; the tree must not contain them.
TEST_P(DraftsTest, ThePrefixTreeHoldsNoDrafts) {
  start(with_logit_rows());
  const Request first{prompt(13, 1), {.temperature = 0}, 50};
  Request second = first;
  const Make make_first = [&] { return std::vector<Request>{first}; };
  const Make make_second = [&] { return std::vector<Request>{second}; };
  const Answers answers = run(make_first, {.prefix_cache = false});
  const auto& text = answers.at({0, 0}).tokens;
  second.prompt.insert(second.prompt.end(), text.begin(), text.end() - 3);
  second.max_tokens = 20;
  const Answers wanted = run(make_second, {.prefix_cache = false});
  for (const Kind kind : {Kind::Wrong, Kind::HalfRight, Kind::Right}) {
    KnownTexts drafter = knowing(kind, make_first, answers);
    run(make_first, {.drafter = &drafter, .draft_tokens = 5});
    expect_cached(second, wanted.at({0, 0}).tokens);
  }
}

TEST_P(DraftsTest, SequencesThatOutgrowTheOriginalContext) {
  LoadOptions options = with_logit_rows();
  options.context = 192;
  start(options, "phi3_longrope_crossing");
  const auto border = static_cast<size_t>(runner_->model().long_from());
  expect_same_texts([&] { return std::vector<Request>{{prompt(border - 9, 1), {.temperature = 0}, 24}}; });
}

TEST_P(DraftsTest, EveryKindOfModel) {
  for (const char* model : {"gemma2", "gemma3", "mistral_sliding_window", "qwen3", "opt", "chatglm2", "llama_f16"}) {
    SCOPED_TRACE(model);
    LoadOptions options = with_logit_rows();
    options.exact = false;
    start(options, model);
    const Make make = [&] {
      return std::vector<Request>{{prompt(40, 1), {.temperature = 0}, 30}, {prompt(9, 2), {.seed = 3}, 30}};
    };
    const Answers alone = run(make);
    for (const Kind kind : {Kind::Right, Kind::HalfRight}) {
      KnownTexts drafter = knowing(kind, make, alone);
      EXPECT_EQ(run(make, {.drafter = &drafter}), alone);
      EXPECT_GT(stats_.accepted_tokens, 10u);
    }
  }
}

// A sequence with drafts waits for its tokens; one that asked for no drafts can run ahead.
TEST_P(DraftsTest, OnlyRequestsWithoutDraftsRunAhead) {
  start(with_logit_rows());
  for (const int32_t drafts : {-1, 0}) {
    const Make make = [&] {
      Request request{prompt(9, 2), {.temperature = 0}, 40};
      request.draft_tokens = drafts;
      return std::vector<Request>{request};
    };
    const Answers alone = run(make);
    KnownTexts drafter = knowing(Kind::HalfRight, make, alone);
    EXPECT_EQ(run(make, {.drafter = &drafter}), alone);
    EXPECT_EQ(drafter.asked() > 0, drafts != 0);
    EXPECT_EQ(stats_.steps_ahead > 30, runner_->runs_ahead() && drafts == 0);
    if (drafts != 0) {
      EXPECT_EQ(stats_.steps_ahead, 0u);
    }
  }
}

TEST_P(DraftsTest, RowsThatTheDeviceCannotDrawAreLeftToTheHost) {
  start(with_logit_rows());
  DrawTables& draws = runner_->draws();
  if (!draws.usable()) GTEST_SKIP() << "the host draws here";
  Sampler plain({.temperature = 1, .seed = 1}, vocab_), penalised({.frequency_penalty = 1}, vocab_);
  penalised.took(3);
  EXPECT_FALSE(draws.set(0, penalised, 0, 3)) << "penalties of the second token wait for the first";
  EXPECT_FALSE(draws.any());
  EXPECT_TRUE(draws.set(2, penalised, 0, 1));
  draws.clear();
  EXPECT_TRUE(draws.set(0, plain, 0, 4));
  EXPECT_TRUE(draws.any());
  draws.clear();
}

TEST_P(DraftsTest, AnyOrderOfEvents) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<Request> asked;
  for (int i = 0; i < 40; ++i) {
    Request r{prompt(1 + random() % 90, static_cast<int32_t>(random() % 4)),
              {.temperature = 1, .seed = random() % 3},
              1 + static_cast<int32_t>(random() % 30)};
    r.choices = 1 + static_cast<int32_t>(random() % 3);
    r.priority = static_cast<int>(random() % 2);
    r.draft_tokens = static_cast<int32_t>(random() % 7) - 1;
    if (random() % 3 == 0) r.sampling.frequency_penalty = 0.5f;
    if (random() % 3 == 0) r.end_tokens = {5, 6, 7, 8, 9};
    asked.push_back(r);
  }
  const Make make = [&] { return asked; };
  start(with_logit_rows());
  const Answers alone = run(make, {.prefix_cache = false});
  start(with_logit_rows(192));
  KnownTexts drafter = knowing(Kind::HalfRight, make, alone);
  expect_any_order(random, asked, alone, {.drafter = &drafter, .draft_tokens = 5});
  EXPECT_GT(stats_.accepted_tokens, 0u);
}

std::shared_ptr<const Tokenizer> word_tokenizer(int32_t vocab) {
  nlohmann::json words;
  for (int32_t i = 0; i < vocab; ++i) words["t" + std::to_string(i) + "."] = i;
  const nlohmann::json model{{"model", {{"type", "WordLevel"}, {"unk_token", "t0."}, {"vocab", words}}}};
  return tokenizer_from_json(model.dump(), "");
}

TEST_P(DraftsTest, StopStringsInsideOfADraft) {
  start(with_logit_rows());
  const auto tokenizer = word_tokenizer(vocab_);
  CompletionOptions options{.prompt = prompt(6, 1), .sampling = {.temperature = 0.9f, .seed = 2, .logprobs = 1}};
  options.max_tokens = 24;
  const auto ask = [&](Drafter* drafter, std::string* streamed) {
    Engine engine(*runner_, {.drafter = drafter, .draft_tokens = 5});
    const Completion result =
        complete(engine, tokenizer.get(), options, [&](std::string_view piece) { *streamed += piece; });
    EngineStats stats;
    engine.fill(stats);
    EXPECT_EQ(stats.kv_blocks_used, 0);
    EXPECT_EQ(result.logprobs.size(), result.tokens.size());
    EXPECT_EQ(*streamed, result.text);
    return result;
  };
  std::string free_text;
  const Completion free = ask(nullptr, &free_text);
  ASSERT_EQ(free.tokens.size(), 24u);
  KnownTexts drafter(Kind::Right, vocab_);
  auto text = options.prompt;
  text.insert(text.end(), free.tokens.begin(), free.tokens.end());
  drafter.know(text);
  for (size_t at = 1; at < 14; ++at) {  // at every position of a draft, and across two tokens
    const std::string word = "t" + std::to_string(free.tokens[at]), next = "t" + std::to_string(free.tokens[at + 1]);
    const size_t found = free_text.find(word + ".");
    ASSERT_NE(found, std::string::npos);
    const size_t behind = free_text.find(next, found);
    for (const std::string& stop : {word + ".", free_text.substr(found + 1, behind + 2 - found - 1)}) {
      options.stop = {stop};
      std::string plain, drafted;
      const Completion wanted = ask(nullptr, &plain), heard = ask(&drafter, &drafted);
      EXPECT_EQ(wanted.finish, FinishReason::Stop) << stop;
      EXPECT_EQ(heard.finish, wanted.finish) << stop;
      EXPECT_EQ(heard.tokens, wanted.tokens) << stop;
      EXPECT_EQ(drafted, plain) << stop;
    }
  }
}

TEST_P(DraftsTest, AServiceDeliversEveryTokenOfAStep) {
  start(with_logit_rows());
  const Make make = [&] {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 5; ++i)
      requests.push_back({prompt(5 + static_cast<size_t>(i), i), {.temperature = 0.9f, .seed = 1}, 20 + i});
    return requests;
  };
  const Answers alone = run(make);
  engine_.reset();
  KnownTexts drafter = knowing(Kind::Right, make, alone);
  Service service(*runner_, {.engine = {.drafter = &drafter}});
  std::vector<std::promise<Answer>> heard(make().size());
  size_t i = 0;
  for (Request& request : make()) {
    auto answer = std::make_shared<Answer>();
    service.submit(std::move(request), [answer, done = &heard[i++]](const Emission& e) {
      if (e.token >= 0) answer->tokens.push_back(e.token);
      answer->finish = e.finish;
      if (e.finish != FinishReason::None) done->set_value(*answer);
    });
  }
  for (i = 0; i < heard.size(); ++i) EXPECT_EQ(heard[i].get_future().get(), alone.at({i, 0}));
  EXPECT_TRUE(service.drain(std::chrono::seconds(30)));
  EXPECT_GT(service.stats().accepted_tokens, 50u);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, DraftsTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
