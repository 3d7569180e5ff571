// The engine's promises with few pages: prefixes are shared, sequences are preempted and resumed, no token is lost.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/where.h"
#include "fresh_seed.h"
#include "models/golden.h"

namespace millrace {
namespace {

using Tokens = std::vector<int32_t>;

LoadOptions small(int64_t kv_tokens = 0) {
  LoadOptions options{.threads = 1, .exact = true, .context = 128, .sequences = 4, .rows = 32};
  options.block_size = 16;
  options.kv_tokens = kv_tokens;
  options.logit_rows = 16;
  return options;
}

class SchedulingTest : public testing::TestWithParam<Where> {
 protected:
  void start(LoadOptions load_options, const std::string& model = "llama_gqa", EngineOptions options = {}) {
    engine_.reset();
    ended_.clear();
    cached_.clear();
    runner_ = load((goldens_folder() / model).string(), at(GetParam(), load_options));
    engine_ = std::make_unique<Engine>(*runner_, options);
  }

  Tokens prompt(size_t length, int32_t first) const {
    Tokens tokens(length);
    for (size_t i = 0; i < length; ++i) tokens[i] = (first * 17 + static_cast<int32_t>(i) * 7) % 90;
    return tokens;
  }

  // The tokens of every choice, by (id, choice). Each choice must end exactly once.
  std::map<std::pair<RequestId, int32_t>, Tokens> run_all() {
    std::map<std::pair<RequestId, int32_t>, Tokens> heard;
    while (engine_->step([&](const Emission& e) {
      const std::pair key(e.id, e.choice);
      EXPECT_FALSE(ended_.contains(key)) << "nothing comes after the end";
      if (e.token >= 0) heard[key].push_back(e.token);
      cached_[e.id] = e.cached_tokens;
      if (e.finish != FinishReason::None) ended_.insert(key);
    })) {
    }
    return heard;
  }

  Tokens run_one(Request request) {
    const RequestId id = engine_->submit(std::move(request));
    return run_all()[{id, 0}];
  }

  EngineStats stats() {
    EngineStats stats;
    engine_->fill(stats);
    return stats;
  }

  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Engine> engine_;
  std::set<std::pair<RequestId, int32_t>> ended_;
  std::map<RequestId, int32_t> cached_;
};

TEST_P(SchedulingTest, ASharedPrefixIsNotComputedAgainAndChangesNothing) {
  for (const char* model : {"llama_gqa", "mistral_sliding_window", "gemma3"}) {
    start(small(), model);
    const Request first{prompt(70, 1), {.temperature = 0}, 12};
    Request second = first;
    second.prompt.resize(53);
    second.prompt.push_back(5);
    start(small(), model, {.prefix_cache = false});
    const Tokens alone_first = run_one(first), alone_second = run_one(second);
    start(small(), model);
    EXPECT_EQ(run_one(first), alone_first) << model;
    const RequestId id = engine_->submit(second);
    EXPECT_EQ((run_all()[{id, 0}]), alone_second) << model;
    EXPECT_EQ(cached_[id], 53) << model;
    const RequestId again = engine_->submit(first);
    EXPECT_EQ((run_all()[{again, 0}]), alone_first) << model;
    EXPECT_EQ(cached_[again], 64) << "all but the last chunk, which runs in the same shape again";
  }
}

TEST_P(SchedulingTest, PromptsThatBeginAlikeAtTheSameTimeAreComputedOnce) {
  start(small());
  const Tokens common = prompt(96, 3);
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 4; ++i) {
    Tokens tokens = common;
    tokens.push_back(i);
    ids.push_back(engine_->submit({tokens, {.temperature = 0}, 3}));
  }
  run_all();
  EXPECT_EQ(cached_[ids[0]], 0);
  for (size_t i = 1; i < 4; ++i) EXPECT_GE(cached_[ids[i]], 80) << i;
}

TEST_P(SchedulingTest, ChoicesShareThePromptAndDrawApart) {
  start(small());
  Request request{prompt(40, 2), {.temperature = 1, .seed = 5}, 10};
  std::vector<Tokens> single;
  for (uint64_t choice = 0; choice < 7; ++choice) {
    Request one = request;
    one.sampling.stream = choice;
    single.push_back(run_one(one));
  }
  start(small());
  request.choices = 7;  // more than can run at the same time
  const RequestId id = engine_->submit(request);
  auto heard = run_all();
  for (int32_t choice = 0; choice < 7; ++choice) {
    EXPECT_EQ((heard[{id, choice}]), single[static_cast<size_t>(choice)]) << choice;
  }
  EXPECT_EQ(stats().prompt_tokens, 40u);
  EXPECT_EQ(stats().kv_blocks_used, 0);
}

TEST_P(SchedulingTest, ChoicesThatWaitDoNotCountTheirPromptAsFoundAgain) {
  LoadOptions options = small(128);
  options.sequences = 2;
  start(options);
  Request request{prompt(64, 2), {.temperature = 1, .seed = 5}, 1};
  run_one(request);  // puts the prompt into the tree; its second chunk of 32 rows runs again
  request.choices = 4;
  const RequestId id = engine_->submit(request);
  engine_->step([&](const Emission& e) { EXPECT_EQ(e.cached_tokens, 32); });
  ASSERT_EQ(engine_->waiting(), 2u) << "two choices have no place yet";
  Request urgent{prompt(120, 9), {.temperature = 0}, 2};
  urgent.priority = 1;
  engine_->submit(urgent);  // takes all pages, so the prompt is computed again, once for both waiting choices
  const auto heard = run_all();
  EXPECT_TRUE(heard.contains({id, 2}) && heard.contains({id, 3}));
  EXPECT_EQ(cached_[id], 32);
  EXPECT_EQ(stats().cached_tokens, 32u);
}

TEST_P(SchedulingTest, StreamsGiveWayAndComeBackUnchanged) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i)
    requests.push_back({prompt(20 + 5 * static_cast<size_t>(i), i), {.temperature = 0.9f, .seed = 3}, 60});
  start(small());
  std::vector<Tokens> roomy;
  for (const auto& request : requests) roomy.push_back(run_one(request));
  start(small(160));  // little more than the longest needs, so some are preempted
  std::vector<RequestId> ids;
  for (const auto& request : requests) ids.push_back(engine_->submit(request));
  auto heard = run_all();
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ((heard[{ids[i], 0}]), roomy[i]) << i;
  EXPECT_GT(stats().preemptions, 0u);
  EXPECT_GT(stats().evicted_blocks, 0u);
}

TEST_P(SchedulingTest, SequencesThatOutgrowTheOriginalContextAreComputedAgain) {
  LoadOptions roomy = small();
  roomy.context = 192;
  start(roomy, "phi3_longrope_crossing", {.prefix_cache = false});
  const int64_t border = runner_->model().long_from();
  ASSERT_EQ(border, 128);
  const Request request{prompt(static_cast<size_t>(border) - 3, 1), {.temperature = 0}, 8};
  const Tokens plain = run_one(request);
  start(roomy, "phi3_longrope_crossing");
  EXPECT_EQ(run_one(request), plain);
  EXPECT_EQ(run_one(request), plain) << "pages of the short and the long part are not mixed up";
  Request longer = request;
  for (const int32_t token : plain) longer.prompt.push_back(token);
  longer.max_tokens = 4;
  const Tokens found = run_one(longer);
  start(roomy, "phi3_longrope_crossing", {.prefix_cache = false});
  EXPECT_EQ(run_one(longer), found);
}

TEST_P(SchedulingTest, PromptsAreScored) {
  start(small());
  const Tokens tokens = prompt(50, 4);
  const auto logits = all_logits(*runner_, tokens, 16);
  engine_->submit({tokens, {}, 1});  // caches the prompt; its rows must still be scored
  run_all();
  Request request{.prompt = tokens, .kind = RequestKind::Score, .prompt_logprobs = 3};
  engine_->submit(request);
  int emissions = 0;
  while (engine_->step([&](const Emission& e) {
    ++emissions;
    EXPECT_EQ(e.token, -1);
    EXPECT_EQ(e.finish, FinishReason::Length);
    ASSERT_EQ(e.prompt_logprobs.size(), tokens.size());
    EXPECT_EQ(e.prompt_logprobs[0].chosen.token, -1);
    for (size_t i = 1; i < tokens.size(); ++i) {
      TokenLogprobs wanted;
      fill_logprobs(logits[i - 1], tokens[i], 3, wanted);
      EXPECT_EQ(e.prompt_logprobs[i].chosen.token, tokens[i]);
      EXPECT_NEAR(e.prompt_logprobs[i].chosen.logprob, wanted.chosen.logprob, 1e-4) << i;
      ASSERT_EQ(e.prompt_logprobs[i].top.size(), 3u);
      EXPECT_EQ(e.prompt_logprobs[i].top[0].token, wanted.top[0].token);
    }
  })) {
  }
  EXPECT_EQ(emissions, 1);
}

TEST_P(SchedulingTest, EchoWithLogprobsComesWithTheFirstToken) {
  start(small());
  Request request{prompt(21, 4), {.temperature = 0}, 3};
  request.prompt_logprobs = 0;
  engine_->submit(request);
  size_t emissions = 0;
  while (engine_->step([&](const Emission& e) { EXPECT_EQ(e.prompt_logprobs.size(), ++emissions == 1 ? 21u : 0u); })) {
  }
  EXPECT_EQ(emissions, 3u);
}

TEST_P(SchedulingTest, EmbeddingsAreOfUnitLengthAndTellPromptsApart) {
  start(small());
  const auto embed = [&](const Tokens& tokens, Pooling pooling, bool normalise) {
    std::vector<float> embedding;
    engine_->submit({.prompt = tokens, .kind = RequestKind::Embed, .pooling = pooling, .normalise = normalise});
    engine_->submit({prompt(9, 8), {}, 4});  // shares its steps
    while (engine_->step([&](const Emission& e) {
      if (!e.embedding.empty()) embedding.assign(e.embedding.begin(), e.embedding.end());
    })) {
    }
    return embedding;
  };
  const auto length = [](const std::vector<float>& v) {
    double sum = 0;
    for (const float x : v) sum += x * x;
    return std::sqrt(sum);
  };
  for (const Pooling pooling : {Pooling::Mean, Pooling::Last}) {
    const auto a = embed(prompt(60, 1), pooling, true), b = embed(prompt(60, 2), pooling, true);
    ASSERT_EQ(a.size(), static_cast<size_t>(runner_->model().config().hidden));
    EXPECT_NEAR(length(a), 1, 1e-5);
    EXPECT_NE(a, b);
    const auto again = embed(prompt(60, 1), pooling, true);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], again[i], 1e-5);
  }
  // For a prompt of one token the mean equals the last row.
  const auto mean = embed({7}, Pooling::Mean, false), last = embed({7}, Pooling::Last, false);
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], last[i], 1e-5);
  EXPECT_GT(length(mean), 1.5) << "not normalised";
}

// Allows a fixed list of tokens, then none.
class Script : public Constraint {
 public:
  explicit Script(Tokens tokens) : tokens_(std::move(tokens)) {}
  bool fill_mask(std::span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0);
    words[static_cast<size_t>(tokens_[at_]) / 32] |= uint32_t{1} << (tokens_[at_] % 32);
    return true;
  }
  void accept(int32_t token) override {
    EXPECT_EQ(token, tokens_[at_]);
    ++at_;
  }
  void mark() override { marked_ = at_; }
  void roll_back() override { at_ = marked_; }
  bool terminated() const override { return at_ == tokens_.size(); }

 private:
  Tokens tokens_;
  size_t at_ = 0, marked_ = 0;
};

TEST_P(SchedulingTest, ConstraintsBindEachChoice) {
  start(small(160));
  Request request{prompt(30, 1), {.temperature = 1}, 50};
  request.choices = 3;
  std::vector<Tokens> scripts{{5, 6, 7}, {9}, {1, 2, 3, 4, 5, 6, 7, 8}};
  for (const auto& script : scripts) request.constraints.push_back(std::make_shared<Script>(script));
  const RequestId id = engine_->submit(request);
  for (int32_t i = 0; i < 4; ++i) engine_->submit({prompt(40, i), {}, 40});  // makes pages run out
  auto heard = run_all();
  for (int32_t choice = 0; choice < 3; ++choice) EXPECT_EQ((heard[{id, choice}]), scripts[static_cast<size_t>(choice)]);
}

// A constraint that fails: the answer ends with an error, and no forbidden token is emitted.
class GivesUp : public Script {
 public:
  using Script::Script;
  void accept(int32_t token) override {
    Script::accept(token);
    failed_ = token == 6;
  }
  void mark() override {
    Script::mark();
    marked_failed_ = failed_;
  }
  void roll_back() override {
    Script::roll_back();
    failed_ = marked_failed_;
  }
  bool failed() const override { return failed_; }

 private:
  bool failed_ = false, marked_failed_ = false;
};

TEST_P(SchedulingTest, AConstraintThatFailsEndsInAnError) {
  start(small());
  Request request{prompt(10, 1), {.temperature = 1}, 20};
  request.constraints = {std::make_shared<GivesUp>(Tokens{5, 6, 7})};
  engine_->submit(request);
  Tokens heard;
  FinishReason finish = FinishReason::None;
  while (engine_->step([&](const Emission& e) {
    if (e.token >= 0) heard.push_back(e.token);
    finish = e.finish;
  })) {
  }
  EXPECT_EQ(finish, FinishReason::NotInForm);
  EXPECT_EQ(heard, Tokens{5});
}

TEST_P(SchedulingTest, EndTokensWaitForTheLeastLength) {
  start(small());
  Request request{prompt(10, 1), {.temperature = 0}, 20};
  const Tokens free = run_one(request);
  request.end_tokens = {free[1]};
  EXPECT_LE(run_one(request).size(), 2u);
  request.min_tokens = 8;
  EXPECT_GE(run_one(request).size(), 8u);
}

// Random submissions and cancellations: every stream ends or is cancelled, no page leaks, and texts equal those of an
// engine with enough pages.
TEST_P(SchedulingTest, AnyOrderOfEventsKeepsThePromises) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  struct Asked {
    Request request;
    std::map<int32_t, Tokens> heard;
    std::set<int32_t> ended, cancelled;
  };
  std::map<RequestId, Asked> all;
  start(small(192));
  const auto step = [&] {
    return engine_->step([&](const Emission& e) {
      Asked& asked = all.at(e.id);
      EXPECT_FALSE(asked.cancelled.contains(e.choice)) << "cancelled";
      EXPECT_FALSE(asked.ended.contains(e.choice));
      asked.heard[e.choice].push_back(e.token);
      if (e.finish != FinishReason::None) asked.ended.insert(e.choice);
    });
  };
  for (int event = 0; event < 400; ++event) {
    const auto dice = random() % 10;
    if (dice < 2 && engine_->waiting() < 12) {
      Request r{prompt(1 + random() % 100, static_cast<int32_t>(random() % 4)),
                {.temperature = 1, .seed = random() % 3},
                1 + static_cast<int32_t>(random() % 27)};
      r.choices = 1 + static_cast<int32_t>(random() % 3);
      r.priority = static_cast<int>(random() % 2);
      r.client = std::to_string(random() % 3);
      all[engine_->submit(r)].request = r;
    } else if (dice == 2 && !all.empty()) {
      auto& [id, asked] = *std::next(all.begin(), static_cast<std::ptrdiff_t>(random() % all.size()));
      const int32_t choice = static_cast<int32_t>(random() % 4) - 1;
      if (choice >= asked.request.choices) continue;
      engine_->cancel(id, choice);
      for (int32_t c = 0; c < asked.request.choices; ++c) {
        if ((choice < 0 || c == choice) && !asked.ended.contains(c)) asked.cancelled.insert(c);
      }
    } else {
      step();
    }
    const EngineStats s = stats();
    ASSERT_LE(s.kv_blocks_used, s.kv_blocks);
  }
  int steps = 0;
  while (step()) ASSERT_LT(++steps, 10000) << "it never comes to an end";
  for (const auto& [id, asked] : all) {
    for (int32_t c = 0; c < asked.request.choices; ++c)
      EXPECT_TRUE(asked.ended.contains(c) || asked.cancelled.contains(c));
  }
  const EngineStats s = stats();
  EXPECT_EQ(s.running + s.waiting + s.kv_blocks_used, 0);
  engine_.reset();
  EXPECT_EQ(runner_->state().blocks().free(), runner_->state().blocks().size());
  start(small(), "llama_gqa", {.prefix_cache = false});
  for (auto& [id, asked] : all) {
    for (int32_t c = 0; c < asked.request.choices; ++c) {
      if (!asked.ended.contains(c)) continue;
      Request one = asked.request;
      one.choices = 1;
      one.sampling.stream = static_cast<uint64_t>(c);
      EXPECT_EQ(run_one(one), asked.heard[c]) << "request " << id << " choice " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, SchedulingTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
