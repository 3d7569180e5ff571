// Cached state that leaves one engine and returns in another.
#include "engine/saved_prefix.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/where.h"
#include "models/golden.h"

namespace millrace {
namespace {

using Tokens = std::vector<int32_t>;

class SavedPrefixTest : public testing::Test {
 protected:
  void start(int64_t kv_tokens = 0, const std::string& model = "llama_gqa") {
    LoadOptions options{.threads = 1, .exact = true, .context = 128, .sequences = 2, .rows = 32};
    options.block_size = 16;
    options.kv_tokens = kv_tokens;
    engine_.reset();
    runner_ = load((goldens_folder() / model).string(), options);
    engine_ = std::make_unique<Engine>(*runner_);
  }
  Tokens run(const Tokens& prompt) {
    Request request{.prompt = prompt, .max_tokens = 10};
    request.sampling.temperature = 0;
    engine_->submit(std::move(request));
    Tokens answer;
    while (engine_->step([&](const Emission& e) {
      answer.push_back(e.token);
      cached_ = e.cached_tokens;
    })) {
    }
    return answer;
  }
  static Tokens prompt() {
    Tokens tokens(41);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 60);
    return tokens;
  }

  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Engine> engine_;
  int32_t cached_ = 0;
};

TEST_F(SavedPrefixTest, AnotherEngineGoesOnWithIt) {
  start();
  const Tokens answer = run(prompt());
  Tokens all = prompt();
  all.insert(all.end(), answer.begin(), answer.end());
  const SavedPrefix saved = engine_->save_prefix(all);
  EXPECT_EQ(saved.tokens, 50);  // the last token of an answer is not computed
  EXPECT_EQ(saved.pages.size(), 4 * saved_page_bytes(runner_->state()));
  const Tokens wanted = run(all);

  start();
  EXPECT_EQ(engine_->restore_prefix(std::span(all).first(50), saved.pages), 50);
  EXPECT_EQ(run(all), wanted);
  EXPECT_EQ(cached_, 50);
  EXPECT_EQ(run(prompt()), answer);
}

// Pages alone do not continue a sequence with recurrent state; a pure recurrent model has no bytes in its pages.
TEST_F(SavedPrefixTest, RecurrentStateIsSavedWithThePages) {
  for (const char* model : {"qwen3_next", "granite_hybrid", "mamba2"}) {
    SCOPED_TRACE(model);
    start(0, model);
    const Tokens answer = run(prompt());
    Tokens all = prompt();
    all.insert(all.end(), answer.begin(), answer.end());
    const SavedPrefix saved = engine_->save_prefix(all);
    EXPECT_EQ(saved.tokens, 50);
    const Tokens wanted = run(all);
    Tokens again = prompt();  // leaves out the answer: resumes at the snapshot before the deepest
    again.resize(45, 3);
    const Tokens other = run(again);

    start(0, model);
    const auto known = std::span(all).first(50);
    const std::span<const std::byte> bytes = saved.pages;
    EXPECT_EQ(engine_->restore_prefix(known, bytes.first(bytes.size() - 1)), 0);
    EXPECT_EQ(engine_->restore_prefix(known, bytes.first(4 * saved_page_bytes(runner_->state()))), 0);
    EXPECT_EQ(engine_->restore_prefix(known, bytes), 50);
    EngineStats stats;
    engine_->fill(stats);
    EXPECT_EQ(stats.snapshots, 2);
    EXPECT_EQ(stats.snapshot_bytes, 2 * static_cast<int64_t>(runner_->state().slot(0).stride));
    EXPECT_EQ(run(all), wanted);
    EXPECT_EQ(cached_, 50);
    EXPECT_EQ(run(again), other);
    EXPECT_GE(cached_, 32);
  }
}

TEST_F(SavedPrefixTest, WhatDoesNotFitIsLeftOut) {
  start();
  const Tokens answer = run(prompt());
  const SavedPrefix saved = engine_->save_prefix(prompt());
  const Tokens known = prompt();
  start();
  EXPECT_EQ(engine_->restore_prefix(std::span(known).first(20), saved.pages), 0);  // three pages for two
  EXPECT_EQ(run(prompt()), answer);
  EXPECT_EQ(engine_->save_prefix(Tokens{1, 2, 3}).tokens, 0);

  // Every page is used: the engine still runs, since restored pages can be evicted.
  start(/*kv_tokens=*/128);
  Tokens longer = known;
  std::vector<std::byte> pages = saved.pages;
  longer.resize(48, 1);
  for (int i = 0; i < 8; ++i) {
    longer.resize(longer.size() + 16, i);
    pages.resize(pages.size() + saved_page_bytes(runner_->state()));
  }
  EXPECT_EQ(engine_->restore_prefix(longer, pages), 128);
  EXPECT_EQ(run(Tokens(100, 5)).size(), 10U);
}

}  // namespace
}  // namespace millrace
