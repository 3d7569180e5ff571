// The toy architecture in the whole engine: chunks, decode, prefix cache, forks and drafts give the same results.
#include "models/toy_architecture.h"

#include <gtest/gtest.h>

#include "engine/drafts.h"
#include "engine/engine.h"
#include "models/memory_source.h"

namespace millrace {
namespace {

constexpr int64_t kVocab = 90, kHidden = 64;

std::shared_ptr<const WeightSource> toy_source() {
  const std::string config = R"({"architectures": ["Toy"], "vocab_size": 90, "hidden_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5})";
  return std::make_shared<MemorySource>(config, std::vector<std::pair<std::string, std::vector<int64_t>>>{
                                                    {"embed.weight", {kVocab, kHidden}},
                                                    {"norm.0", {kHidden}},
                                                    {"norm.1", {kHidden}},
                                                    {"norm.2", {kHidden}},
                                                    {"norm.3", {kHidden}},
                                                    {"qkv.weight", {128, kHidden}},
                                                    {"out.weight", {kHidden, kHidden}},
                                                    {"conv_in.weight", {Toy::kChannels, kHidden}},
                                                    {"taps", {Toy::kChannels * Toy::kTaps}},
                                                    {"conv_out.weight", {kHidden, Toy::kChannels}},
                                                    {"router.weight", {Toy::kExperts, kHidden}},
                                                    {"experts.weight", {Toy::kExperts * kHidden, kHidden}},
                                                    {"head.weight", {kVocab, kHidden}},
                                                });
}

std::unique_ptr<Runner> load_toy(int64_t rows, int64_t sequences = 1, bool invariant = false) {
  LoadOptions options{.architecture = &kToy, .threads = 2, .exact = true, .context = 250, .sequences = sequences};
  options.batch_invariant = invariant;
  options.rows = rows;
  options.logit_rows = std::max(rows, sequences);
  options.block_size = 16;
  auto runner = std::make_unique<Runner>(toy_source(), options);
  runner->load();
  return runner;
}

std::vector<int32_t> some_tokens(int32_t count, int32_t factor = 7) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * factor + i * i) % static_cast<int32_t>(kVocab));
  return tokens;
}

std::vector<double> prompt_scores(Runner& runner, const std::vector<int32_t>& prompt) {
  Request request{prompt};
  request.kind = RequestKind::Score;
  request.prompt_logprobs = 0;
  Engine engine(runner);
  engine.submit(request);
  std::vector<double> scores;
  while (engine.step([&](const Emission& e) {
    for (const auto& token : e.prompt_logprobs) scores.push_back(token.chosen.logprob);
  })) {
  }
  return scores;
}

std::vector<std::vector<int32_t>> generate(Engine& engine, const std::vector<int32_t>& prompt, int32_t count,
                                           int32_t choices = 1) {
  Request request{prompt, {.temperature = 0}, count};
  request.choices = choices;
  engine.submit(request);
  std::vector<std::vector<int32_t>> texts(static_cast<size_t>(choices));
  while (engine.step([&](const Emission& e) { texts[static_cast<size_t>(e.choice)].push_back(e.token); })) {
  }
  return texts;
}

TEST(Toy, ChunksOfAnySizeGiveTheSameLogits) {
  const auto prompt = some_tokens(60);
  const auto expected = prompt_scores(*load_toy(64), prompt);
  ASSERT_EQ(expected.size(), prompt.size());
  for (const int64_t rows : {1, 3, 7, 16, 33}) {
    const auto scores = prompt_scores(*load_toy(rows), prompt);
    ASSERT_EQ(scores.size(), expected.size());
    for (size_t i = 1; i < scores.size(); ++i) EXPECT_NEAR(scores[i], expected[i], 1e-4) << rows << " rows, " << i;
  }
}

// Only the last row of a chunk has logits: the pass is narrowed before the last layer, which has no attention.
TEST(Toy, NarrowedStepsGiveTheSameTokens) {
  const auto prompt = some_tokens(40);
  auto runner = load_toy(64), small = load_toy(5);
  Engine a(*runner), b(*small);
  EXPECT_EQ(generate(a, prompt, 20), generate(b, prompt, 20));
}

TEST(Toy, ResumedAndForkedSequencesKeepBothKindsOfState) {
  auto runner = load_toy(16, 4);
  const auto prompt = some_tokens(50);
  std::vector<int32_t> cold;
  {
    Engine engine(*runner, {.prefix_cache = false});
    cold = generate(engine, prompt, 24).front();
  }
  Engine engine(*runner);
  EXPECT_EQ(generate(engine, prompt, 24).front(), cold);
  EXPECT_EQ(generate(engine, prompt, 24).front(), cold) << "behind the prompt's snapshot";
  std::vector<int32_t> turn = prompt;  // the next turn of a conversation begins with the first prompt and answer
  turn.insert(turn.end(), cold.begin(), cold.end() - 1);
  EXPECT_EQ(generate(engine, turn, 1).front().front(), cold.back());
  EngineStats stats;
  engine.fill(stats);
  EXPECT_GT(stats.cached_tokens, 49u) << "snapshots are found";
  for (const auto& choice : generate(engine, prompt, 24, 3)) EXPECT_EQ(choice, cold);
}

struct Answer {
  std::vector<std::pair<int32_t, float>> tokens;  // with log-probabilities
  int32_t cached = 0;
};

Answer ask(Engine& engine, const std::vector<int32_t>& prompt, int32_t count) {
  Answer answer;
  engine.submit({prompt, {.temperature = 0, .logprobs = 0}, count});
  while (engine.step([&](const Emission& e) {
    answer.tokens.emplace_back(e.token, e.logprobs->chosen.logprob);
    answer.cached = e.cached_tokens;
  })) {
  }
  return answer;
}

// A conversation whose template rewrites the last tokens of each answer.
TEST(Toy, ResumedTurnsAreTheColdBitsAndAreHardlyComputedAgain) {
  for (const int64_t rows : {5, 32, 200}) {
    auto runner = load_toy(rows, 4, /*invariant=*/true);
    Engine cold(*runner, {.prefix_cache = false}), warm(*runner);
    auto text = some_tokens(110);
    int32_t shared = 0, cached = 0;
    for (int turn = 0; turn < 5; ++turn) {
      const Answer wanted = ask(cold, text, 8), answer = ask(warm, text, 8);
      EXPECT_EQ(answer.tokens, wanted.tokens) << rows << " rows, turn " << turn;
      cached += answer.cached;
      for (const auto& [token, logprob] : wanted.tokens) text.push_back(token);
      text.resize(text.size() - 2);
      if (turn < 4) shared += static_cast<int32_t>(text.size());
      for (const int32_t token : some_tokens(15, 3 + turn)) text.push_back(token);
    }
    EXPECT_GE(cached, shared * 9 / 10) << rows;
  }
}

TEST(Toy, TheSameRequestGivesTheSameBits) {
  for (const int64_t rows : {16, 200}) {
    auto runner = load_toy(rows, 4);
    Engine engine(*runner);
    for (const int32_t length : {20, 100, 170}) {
      const auto prompt = some_tokens(length, 5);
      const Answer cold = ask(engine, prompt, 10);
      ask(engine, some_tokens(length, 6), 10);
      for (int i = 0; i < 2; ++i) EXPECT_EQ(ask(engine, prompt, 10).tokens, cold.tokens) << rows << " " << length;
    }
  }
}

// A rejected draft has changed the slot, so the state must be restored.
TEST(Toy, DraftsDoNotChangeTheText) {
  auto runner = load_toy(16, 2);
  const auto prompt = some_tokens(30, 11);
  Engine plain(*runner);
  const auto expected = generate(plain, prompt, 20).front();
  std::vector<int32_t> text = prompt;
  text.insert(text.end(), expected.begin(), expected.end());
  for (const KnownTexts::Kind kind : KnownTexts::kAll) {
    KnownTexts drafter(kind, static_cast<int32_t>(kVocab));
    drafter.know(text);
    Engine engine(*runner, {.drafter = &drafter});
    EXPECT_EQ(generate(engine, prompt, 20).front(), expected) << static_cast<int>(kind);
  }
}

TEST(Toy, PlansBothKindsOfStateAndItsOwnBuffers) {
  LoadOptions options{.architecture = &kToy, .threads = 1, .exact = true, .context = 200};
  const Runner runner(toy_source(), options);
  const std::string plan = runner.memory().to_string();
  EXPECT_NE(plan.find("KV cache of"), std::string::npos) << plan;
  EXPECT_NE(plan.find("recurrent state of"), std::string::npos) << plan;
}

}  // namespace
}  // namespace millrace
