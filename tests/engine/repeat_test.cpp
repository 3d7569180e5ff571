// One and the same request on an idle engine gives the same logits bit for bit, cold or from the prefix cache, without
// batch-invariant kernels.
#include <gtest/gtest.h>

#include <random>

#include "engine/invariance.h"
#include "engine/where.h"
#include "fresh_seed.h"
#include "models/golden.h"

namespace millrace {
namespace {

using Tokens = std::vector<int32_t>;

struct LoneAnswer {
  std::vector<std::pair<int32_t, float>> tokens;  // with log-probabilities
  int32_t cached = 0;
};

class RepeatTest : public testing::TestWithParam<Where> {
 protected:
  void start(const std::string& model, int64_t rows, int64_t kv_tokens = 0) {
    engine_.reset();
    LoadOptions options{.threads = 1, .context = 400, .sequences = 4, .rows = rows};
    options.past_training = true;
    options.logit_rows = rows;
    options.block_size = 16;
    options.kv_tokens = kv_tokens;
    runner_ = load((goldens_folder() / model).string(), at(GetParam(), options));
    engine_ = std::make_unique<Engine>(*runner_);
  }

  LoneAnswer ask(const Tokens& prompt) {
    LoneAnswer heard;
    engine_->submit({prompt, {.temperature = 0, .logprobs = 0}, 12});
    while (engine_->step([&](const Emission& e) {
      heard.tokens.emplace_back(e.token, e.logprobs->chosen.logprob);
      heard.cached = e.cached_tokens;
    })) {
    }
    return heard;
  }

  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(RepeatTest, ColdAndCachedAnswersAreTheSameBits) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int shapes_matter = 0;
  for (const char* model : {"llama_f16", "llama_bf16_smollm2", "deepseek_v2"}) {
    for (const int64_t rows : {24, 64, 400}) {
      start(model, rows);
      for (const size_t length : {3, 30, 95, 96, 130, 257, 380}) {
        SCOPED_TRACE(fmt::format("{} {} rows {} tokens", model, rows, length));
        const Tokens prompt = random_prompt(*runner_, random, length);
        engine_ = std::make_unique<Engine>(*runner_);
        const LoneAnswer cold = ask(prompt);
        EXPECT_EQ(cold.cached, 0);
        Tokens turn = prompt;  // the next turn of a conversation
        for (const auto& [token, logprob] : cold.tokens) turn.push_back(token);
        turn.resize(std::min<size_t>(turn.size(), 380));
        const LoneAnswer first = ask(turn);
        for (int i = 0; i < 2; ++i) {
          const LoneAnswer again = ask(prompt);
          EXPECT_EQ(again.tokens, cold.tokens);
          EXPECT_GE(again.cached, static_cast<int32_t>(length) - 96);
          EXPECT_EQ(ask(turn).tokens, first.tokens);
        }
        engine_.reset();  // frees the pages
        const auto whole = all_logits(*runner_, prompt, static_cast<int32_t>(rows));
        shapes_matter += all_logits(*runner_, prompt, 1).back() != whole.back() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(shapes_matter, 10) << "otherwise this test cannot fail";
}

// Evicted pages are computed again in the chunks of the first time.
TEST_P(RepeatTest, EvictionKeepsTheBits) {
  start("llama_f16", 64, 416);
  std::mt19937 random(5);
  const Tokens prompt = random_prompt(*runner_, random, 350);
  const LoneAnswer cold = ask(prompt);
  for (const size_t other : {30, 100, 200, 300}) {
    ask(random_prompt(*runner_, random, other));  // takes some of its pages
    EXPECT_EQ(ask(prompt).tokens, cold.tokens) << other;
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, RepeatTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
