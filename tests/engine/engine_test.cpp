#include "engine/engine.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "engine/completion.h"
#include "engine/where.h"
#include "models/golden.h"

namespace millrace {
namespace {

class EngineTest : public testing::TestWithParam<Where> {
 protected:
  std::unique_ptr<Runner> runner_ =
      load((goldens_folder() / "llama_gqa").string(),
           at(GetParam(), {.threads = 2, .exact = true, .context = 128, .sequences = 3, .rows = 24, .block_size = 16}));
  Engine engine_{*runner_};

  std::map<RequestId, std::vector<int32_t>> run_all() {
    std::map<RequestId, std::vector<int32_t>> tokens;
    while (engine_.step([&](const Emission& e) { tokens[e.id].push_back(e.token); })) {
    }
    return tokens;
  }
};

TEST_P(EngineTest, RequestsTogetherGiveTheSameTokensAsAlone) {
  std::vector<Request> requests;
  for (int i = 0; i < 7; ++i) {  // more than can run at the same time
    Request request{{}, {.temperature = i % 2 == 0 ? 0.0f : 0.8f, .seed = uint64_t(i)}, 5 + 3 * i};
    for (int t = 0; t < 3 + 9 * i; ++t) request.prompt.push_back((t * 7 + i) % 90);
    requests.push_back(request);
  }
  std::vector<std::vector<int32_t>> alone;
  for (const auto& request : requests) {
    const RequestId id = engine_.submit(request);
    alone.push_back(run_all()[id]);
    EXPECT_EQ(alone.back().size(), static_cast<size_t>(request.max_tokens));
  }
  std::vector<RequestId> ids;
  for (const auto& request : requests) ids.push_back(engine_.submit(request));
  auto together = run_all();
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[ids[i]], alone[i]) << "request " << i;
}

TEST_P(EngineTest, ACallbackThatThrowsLeavesNoRequestBehind) {
  nlohmann::json vocab;
  for (int64_t i = 0; i < runner_->model().config().vocab; ++i) vocab["t" + std::to_string(i)] = i;
  const nlohmann::json words{{"model", {{"type", "WordLevel"}, {"unk_token", "t0"}, {"vocab", vocab}}}};
  const auto tokenizer = tokenizer_from_json(words.dump(), "");
  const auto ask = [&](std::vector<int32_t> prompt, FunctionRef<void(std::string_view)> on_text) {
    const CompletionOptions options{.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_tokens = 8};
    return complete(engine_, tokenizer.get(), options, on_text).tokens;
  };
  const auto tokens = ask({1, 2, 3}, [](std::string_view) {});
  const auto leave = [](std::string_view) { throw std::runtime_error("enough"); };
  EXPECT_THROW(ask({40, 41, 42, 43}, leave), std::runtime_error);
  EXPECT_EQ(ask({1, 2, 3}, [](std::string_view) {}), tokens);
  EngineStats stats;
  engine_.fill(stats);
  EXPECT_EQ(stats.kv_blocks_used, 0);
}

TEST_P(EngineTest, AllPagesComeBack) {
  const auto before = runner_->state().blocks().free();
  for (int i = 0; i < 5; ++i) engine_.submit({{1, 2, 3}, {}, 20});
  const RequestId doomed = engine_.submit({{4, 5, 6}, {}, 50});
  for (int i = 0; i < 3; ++i) engine_.step([](const Emission&) {});
  engine_.cancel(doomed);
  run_all();
  EngineStats stats;
  engine_.fill(stats);
  EXPECT_EQ(runner_->state().blocks().free() + stats.kv_blocks_cached, before) << "free, or free when needed";
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(engine_.running() + engine_.waiting(), 0u);
}

TEST_P(EngineTest, StopsAtEndTokensAndAtTheContext) {
  const RequestId free = engine_.submit({{1, 2, 3}, {.temperature = 0}, 12});
  const auto tokens = run_all()[free];
  Request stopped{{1, 2, 3}, {.temperature = 0}, 12, {tokens[4]}};
  const RequestId id = engine_.submit(stopped);
  FinishReason reason = FinishReason::None;
  size_t count = 0;
  while (engine_.step([&](const Emission& e) { reason = e.finish, ++count; })) {
  }
  EXPECT_EQ(reason, FinishReason::Stop);
  EXPECT_LE(count, 5u);
  (void)id;
  engine_.submit({std::vector<int32_t>(100, 7), {.temperature = 0}, 0});
  count = 0;
  while (engine_.step([&](const Emission& e) { reason = e.finish, ++count; })) {
  }
  EXPECT_EQ(reason, FinishReason::Length);
  EXPECT_EQ(count, 28u);
}

TEST_P(EngineTest, RequestsThatCanNeverRunAreRefused) {
  const auto message = [&](Request request) -> std::string {
    try {
      engine_.submit(std::move(request));
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({{}, {}, 5}), testing::HasSubstr("empty"));
  EXPECT_THAT(message({{1, 100000}, {}, 5}), testing::HasSubstr("100000"));
  EXPECT_THAT(message({{-1}, {}, 5}), testing::HasSubstr("-1"));
  EXPECT_THAT(message({std::vector<int32_t>(128, 1), {}, 5}),
              testing::StartsWith("This model's maximum context length is 128"));
  EXPECT_THAT(message({{1}, {.temperature = -1}, 5}), testing::HasSubstr("temperature"));
}

// When a sequence meets its end token, a step that ran ahead has computed one row too many. That row must not affect
// other sequences: texts equal those of an engine that waits for every token.
TEST_P(EngineTest, EndsThatComeAsASurpriseLeaveNoTrace) {
  const auto texts = [&](bool waits) {
    std::vector<std::vector<int32_t>> out;
    for (int round = 0; round < 3; ++round) {
      std::vector<RequestId> ids;
      for (int i = 0; i < 5; ++i) {
        Request request{{1 + i, 2, 3 + round}, {.temperature = i % 2 == 0 ? 0.0f : 0.9f, .seed = 7}, 40};
        for (int32_t token = i; token < 96; token += 9) request.end_tokens.push_back(token);
        if (waits) request.sampling.logprobs = 1;  // log-probabilities make the host choose
        ids.push_back(engine_.submit(request));
      }
      auto heard = run_all();
      for (const RequestId id : ids) out.push_back(heard[id]);
    }
    return out;
  };
  const auto waiting = texts(true), ahead = texts(false);
  EXPECT_EQ(ahead, waiting);
  EXPECT_TRUE(std::any_of(ahead.begin(), ahead.end(), [](const auto& text) { return text.size() < 40; }))
      << "some end early";
  EXPECT_EQ(engine_.running() + engine_.waiting(), 0u);
  EngineStats stats;
  engine_.fill(stats);
  EXPECT_EQ(stats.steps_ahead > 20, runner_->runs_ahead());
}

TEST_P(EngineTest, TheNextStepStartsFromTokensThatNobodyHasSeen) {
  if (!runner_->runs_ahead()) GTEST_SKIP() << "the host chooses tokens here";
  StepBatch batch(24, 3, 24);
  std::vector<std::vector<int32_t>> heard;
  std::vector<BlockTable> tables;
  const std::vector<int32_t> prompt{5, 17, 40};
  for (const bool ahead : {false, true}) {
    BlockTable& table = tables.emplace_back(runner_->state().new_table(64));
    ASSERT_TRUE(table.reserve(64));
    std::vector<int32_t>& tokens = heard.emplace_back();
    const auto add = [&](std::span<const int32_t> rows, int32_t past) {
      batch.clear();
      batch.add(rows, past, past + static_cast<int32_t>(rows.size()), table.pages(), StepBatch::Logits::Last);
    };
    add(prompt, 0);
    runner_->start(batch.batch());
    for (int32_t i = 0; i < 20; ++i) {
      if (!ahead) tokens.push_back(runner_->finish().front());
      const int32_t next = ahead ? ~0 : tokens.back();
      add({&next, 1}, 3 + i);
      runner_->start(batch.batch());
      if (ahead) tokens.push_back(runner_->finish().front());
    }
    tokens.push_back(runner_->finish().front());
  }
  EXPECT_EQ(heard[0], heard[1]);
  EXPECT_GT(std::set(heard[0].begin(), heard[0].end()).size(), 3u) << "a text, not one token again and again";
}

INSTANTIATE_TEST_SUITE_P(Everywhere, EngineTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
