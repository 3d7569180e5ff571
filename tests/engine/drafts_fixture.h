// Runs requests with and without drafters and compares the texts.
#pragma once

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>

#include "engine/drafts.h"
#include "engine/engine.h"
#include "engine/lookup_drafter.h"
#include "engine/where.h"
#include "models/golden.h"

namespace millrace {

using Kind = KnownTexts::Kind;

// All emissions of one choice.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // of the chosen and of the likeliest token
  FinishReason finish = FinishReason::None;
  bool is_end = false;
  bool operator==(const Answer&) const = default;
};
inline void PrintTo(const Answer& a, std::ostream* out) {
  *out << testing::PrintToString(a.tokens) << " finish " << static_cast<int>(a.finish) << ", logprobs "
       << testing::PrintToString(a.logprobs);
}
using Answers = std::map<std::pair<size_t, int32_t>, Answer>;  // by request and choice

inline LoadOptions with_logit_rows(int64_t kv_tokens = 0, bool invariant = true) {
  LoadOptions options{.threads = 1, .exact = true, .context = 128, .sequences = 4, .rows = 32};
  options.logit_rows = 24;
  options.kv_tokens = kv_tokens;
  options.block_size = 16;
  options.batch_invariant = invariant;
  return options;
}

// The same with places and rows for all branches of four sequences.
inline LoadOptions with_branches(int64_t kv_tokens = 0, bool invariant = true) {
  LoadOptions options = with_logit_rows(kv_tokens, invariant);
  options.branches = 12;
  options.rows = options.logit_rows = 128;
  return options;
}

class DraftsTest : public testing::TestWithParam<Where> {
 protected:
  void start(const LoadOptions& load_options, const std::string& model = "llama_gqa") {
    engine_.reset();
    runner_ = load((goldens_folder() / model).string(), at(GetParam(), load_options));
    vocab_ = static_cast<int32_t>(runner_->model().config().vocab);
  }

  std::vector<int32_t> prompt(size_t length, int32_t first) const {
    std::vector<int32_t> tokens(length);
    for (size_t i = 0; i < length; ++i) tokens[i] = (first * 17 + static_cast<int32_t>(i) * 7) % 90;
    return tokens;
  }

  // Creates new requests for every run, because constraints have state.
  using Make = std::function<std::vector<Request>()>;

  Answers run(const Make& make, const EngineOptions& options = {}) {
    engine_.reset();
    engine_ = std::make_unique<Engine>(*runner_, options);
    Answers heard;
    std::map<RequestId, size_t> index;
    for (Request& request : make()) index.emplace(engine_->submit(std::move(request)), index.size());
    while (engine_->step([&](const Emission& e) {
      Answer& answer = heard[{index.at(e.id), e.choice}];
      EXPECT_EQ(answer.finish, FinishReason::None) << "nothing comes after the end";
      if (e.token >= 0) answer.tokens.push_back(e.token);
      if (e.logprobs != nullptr) {
        EXPECT_EQ(e.logprobs->chosen.token, e.token);
        answer.logprobs.push_back(e.logprobs->chosen.logprob);
        for (const auto& top : e.logprobs->top) answer.logprobs.push_back(top.logprob);
      }
      answer.finish = e.finish;
      answer.is_end = e.is_end;
    })) {
    }
    stats_ = {};
    engine_->fill(stats_);
    EXPECT_EQ(stats_.running + stats_.waiting + stats_.kv_blocks_used, 0) << "all pages come back";
    return heard;
  }

  // Tells a drafter the prompts and answers of a run.
  template <class TestDrafter>
  static void teach(TestDrafter& drafter, const Make& make, const Answers& answers) {
    const auto requests = make();
    for (const auto& [key, answer] : answers) {
      auto text = requests[key.first].prompt;
      text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
      drafter.know(std::move(text));
    }
  }

  KnownTexts knowing(Kind kind, const Make& make, const Answers& answers) const {
    KnownTexts drafter(kind, vocab_);
    teach(drafter, make, answers);
    return drafter;
  }

  // The engine finds all of the prompt in the prefix tree, and answers with these tokens.
  void expect_cached(const Request& request, const std::vector<int32_t>& tokens) {
    std::vector<int32_t> heard;
    int32_t cached = 0;
    engine_->submit(request);
    while (engine_->step([&](const Emission& e) {
      heard.push_back(e.token);
      cached = e.cached_tokens;
    })) {
    }
    EXPECT_EQ(heard, tokens);
    EXPECT_EQ(cached, static_cast<int32_t>(request.prompt.size()) - 1) << "all of it was found";
  }

  // Requests that arrive and are cancelled while others run get the answers that they get alone.
  void expect_any_order(std::mt19937& random, const std::vector<Request>& asked, const Answers& alone,
                        const EngineOptions& options) {
    engine_ = std::make_unique<Engine>(*runner_, options);
    std::map<RequestId, size_t> index;
    Answers heard;
    std::set<std::pair<size_t, int32_t>> cancelled;
    const auto step = [&] {
      return engine_->step([&](const Emission& e) {
        const std::pair key(index.at(e.id), e.choice);
        EXPECT_FALSE(cancelled.contains(key));
        EXPECT_EQ(heard[key].finish, FinishReason::None);
        if (e.token >= 0) heard[key].tokens.push_back(e.token);
        heard[key].finish = e.finish;
        heard[key].is_end = e.is_end;
      });
    };
    for (size_t next = 0; next < asked.size();) {
      const auto dice = random() % 8;
      if (dice < 2) {
        index.emplace(engine_->submit(asked[next]), next);
        ++next;
      } else if (dice == 2 && !index.empty()) {
        const auto& [id, which] = *std::next(index.begin(), static_cast<ptrdiff_t>(random() % index.size()));
        const auto choice = static_cast<int32_t>(random() % 3);
        if (choice >= asked[which].choices || heard[{which, choice}].finish != FinishReason::None) continue;
        engine_->cancel(id, choice);
        cancelled.insert({which, choice});
      } else {
        step();
      }
    }
    int steps = 0;
    while (step()) ASSERT_LT(++steps, 10000);
    for (const auto& [key, answer] : alone) {
      if (cancelled.contains(key)) continue;
      EXPECT_EQ(heard[key], answer) << "request " << key.first << " choice " << key.second;
    }
    stats_ = {};
    engine_->fill(stats_);
    EXPECT_EQ(stats_.kv_blocks_used, 0);
    engine_.reset();
    EXPECT_EQ(runner_->state().blocks().free(), runner_->state().blocks().size());
  }

  // With every drafter and several draft lengths the answers equal those without drafts.
  void expect_same_texts(const Make& make) {
    const Answers alone = run(make);
    const uint64_t steps = stats_.steps, generated = stats_.generated_tokens;
    for (const Kind kind : KnownTexts::kAll) {
      for (const int32_t most : {1, 3, 6}) {
        SCOPED_TRACE(testing::Message() << "drafter " << static_cast<int>(kind) << ", " << most << " tokens");
        KnownTexts drafter = knowing(kind, make, alone);
        const Answers heard = run(make, {.drafter = &drafter, .draft_tokens = most});
        EXPECT_EQ(heard, alone);
        EXPECT_EQ(stats_.generated_tokens, generated);
        EXPECT_LE(drafter.longest_asked(), static_cast<size_t>(most));
        EXPECT_LE(stats_.accepted_tokens, stats_.drafted_tokens);
        if (kind == Kind::Right) {
          EXPECT_LT(stats_.steps, steps);
          EXPECT_GT(stats_.accepted_tokens, 0u);
        }
        if (kind == Kind::Wrong || kind == Kind::None) {
          EXPECT_EQ(stats_.accepted_tokens, 0u);
        }
      }
    }
    for (const bool by_cost : {false, true}) {
      SCOPED_TRACE(testing::Message() << "look-up, by cost " << by_cost);
      LookupDrafter lookup;
      EngineOptions options;
      options.draft_with(lookup);
      options.drafts_by_cost = by_cost;
      EXPECT_EQ(run(make, options), alone);
    }
  }

  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Engine> engine_;
  EngineStats stats_;
  int32_t vocab_ = 0;
};

}  // namespace millrace
