// Several pending tokens per sequence: with any drafter the texts equal those without one.
#include "engine/drafts.h"

#include <gmock/gmock.h>

#include <future>
#include <map>
#include <random>
#include <set>

#include "engine/completion.h"
#include "engine/engine.h"
#include "engine/service.h"
#include "engine/where.h"
#include "grammar/grammar_compiler.h"
#include "grammar/thinking.h"
#include "models/golden.h"

namespace millrace {
namespace {

using Kind = KnownTexts::Kind;

// All emissions of one choice.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // of the chosen and of the likeliest token
  FinishReason finish = FinishReason::None;
  bool is_end = false;
  bool operator==(const Answer&) const = default;
};
void PrintTo(const Answer& a, std::ostream* out) {
  *out << testing::PrintToString(a.tokens) << " finish " << static_cast<int>(a.finish) << ", logprobs "
       << testing::PrintToString(a.logprobs);
}
using Answers = std::map<std::pair<size_t, int32_t>, Answer>;  // by request and choice

LoadOptions with_logit_rows(int64_t kv_tokens = 0, bool invariant = true) {
  LoadOptions options{.threads = 1, .exact = true, .context = 128, .sequences = 4, .rows = 32};
  options.logit_rows = 24;
  options.kv_tokens = kv_tokens;
  options.block_size = 16;
  options.batch_invariant = invariant;
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

  KnownTexts knowing(Kind kind, const Make& make, const Answers& answers) const {
    KnownTexts drafter(kind, vocab_);
    const auto requests = make();
    for (const auto& [key, answer] : answers) {
      auto text = requests[key.first].prompt;
      text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
      drafter.know(std::move(text));
    }
    return drafter;
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
  }

  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Engine> engine_;
  EngineStats stats_;
  int32_t vocab_ = 0;
};

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
    std::vector<int32_t> heard;
    int32_t cached = 0;
    engine_->submit(second);
    while (engine_->step([&](const Emission& e) {
      heard.push_back(e.token);
      cached = e.cached_tokens;
    })) {
    }
    EXPECT_EQ(heard, wanted.at({0, 0}).tokens);
    EXPECT_EQ(cached, static_cast<int32_t>(second.prompt.size()) - 1) << "all of it was found";
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
  const uint32_t seed = std::random_device()();
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
  Engine engine(*runner_, {.drafter = &drafter, .draft_tokens = 5});
  std::map<RequestId, size_t> index;
  Answers heard;
  std::set<std::pair<size_t, int32_t>> cancelled;
  size_t next = 0;
  const auto step = [&] {
    return engine.step([&](const Emission& e) {
      const std::pair key(index.at(e.id), e.choice);
      EXPECT_FALSE(cancelled.contains(key));
      EXPECT_EQ(heard[key].finish, FinishReason::None);
      if (e.token >= 0) heard[key].tokens.push_back(e.token);
      heard[key].finish = e.finish;
      heard[key].is_end = e.is_end;
    });
  };
  while (next < asked.size()) {
    const auto dice = random() % 8;
    if (dice < 2) {
      index.emplace(engine.submit(asked[next]), next);
      ++next;
    } else if (dice == 2 && !index.empty()) {
      const auto& [id, which] = *std::next(index.begin(), static_cast<ptrdiff_t>(random() % index.size()));
      const auto choice = static_cast<int32_t>(random() % 3);
      if (choice >= asked[which].choices || heard[{which, choice}].finish != FinishReason::None) continue;
      engine.cancel(id, choice);
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
  EngineStats stats;
  engine.fill(stats);
  EXPECT_GT(stats.accepted_tokens, 0u);
  EXPECT_EQ(stats.kv_blocks_used, 0);
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

// Every printable character, and some longer tokens that span several JSON symbols.
GrammarVocabulary json_vocabulary(int32_t vocab, int32_t end) {
  GrammarVocabulary v;
  for (char c = ' '; c < 'Q'; ++c) v.tokens.emplace_back(1, c);
  for (const char* text :
       {"{\"", "\":", "\": ", "[", "]", "{", "}", "true", "false", "null", "abc",  "\",", "},", "],", "a",  "b",    "c",
        "d",   "e",   "s",    "t", "r", "u", "n", "l",    "f",     "_",    "name", "\"}", "}]", "12", "3.", "e\": "})
    v.tokens.emplace_back(text);
  v.tokens.resize(static_cast<size_t>(vocab));
  v.tokens[static_cast<size_t>(end)].clear();
  v.end_tokens = {end};
  return v;
}

class DraftsOfGrammarsTest : public DraftsTest {
 protected:
  void SetUp() override {
    start(with_logit_rows());
    compiler_ = std::make_unique<GrammarCompiler>(json_vocabulary(vocab_, vocab_ - 1));
  }
  Request constrained(size_t length, int32_t first, std::shared_ptr<Constraint> constraint) const {
    Request request{prompt(length, first), {.temperature = 1, .seed = 3}, 60, {vocab_ - 1}};
    request.constraints = {std::move(constraint)};
    return request;
  }
  std::unique_ptr<GrammarCompiler> compiler_;
};

constexpr const char* kSchema = R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
    "b": {"type": "array", "items": {"type": "integer", "minimum": -50, "maximum": 1200}, "maxItems": 3},
    "c": {"enum": [true, false, null, "abc", "ace"]}}, "required": ["name", "b", "c"], "additionalProperties": false})";

TEST_P(DraftsOfGrammarsTest, SchemasHoldAndTextsStayTheSame) {
  const GrammarSpec schema{.kind = GrammarSpec::Kind::JsonSchema, .text = kSchema};
  const Make make = [&] {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 5; ++i)
      requests.push_back(constrained(4 + 6 * static_cast<size_t>(i), i, compiler_->compile(schema)));
    requests[1].sampling = {.temperature = 0, .logprobs = 1};
    requests[2].sampling.repetition_penalty = 1.2f;
    requests[3].max_tokens = 9;  // ends in the middle of a rule
    requests[4].min_tokens = 70;
    requests.push_back({prompt(9, 4), {.temperature = 0}, 30});  // one without constraint
    Request several = constrained(15, 7, compiler_->compile(schema));
    several.choices = 2;
    several.constraints.push_back(compiler_->compile(schema));
    requests.push_back(several);
    return requests;
  };
  expect_same_texts(make);
  bool whole = false;
  const Answers answers = run(make);
  const GrammarVocabulary words = json_vocabulary(vocab_, vocab_ - 1);
  for (const auto& [key, answer] : answers) {
    if (key.first == 5 || answer.finish != FinishReason::Stop) continue;
    std::string text;
    for (const int32_t token : answer.tokens) text += words.tokens[static_cast<size_t>(token)];
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
    whole = true;
  }
  EXPECT_TRUE(whole) << "at least one comes to its end";
}

TEST_P(DraftsOfGrammarsTest, TextsThatEndWithTheirGrammar) {
  GrammarVocabulary endless = json_vocabulary(vocab_, vocab_ - 1);
  endless.end_tokens.clear();  // so only the constraint ends the text
  GrammarCompiler compiler(endless);
  const GrammarSpec pattern{.kind = GrammarSpec::Kind::Regex, .text = "(abc|12|[a-e]){7}\\."};
  expect_same_texts([&] {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 3; ++i) requests.push_back(constrained(5, i, compiler.compile(pattern)));
    return requests;
  });
}

TEST_P(DraftsOfGrammarsTest, ThinkingBudgetsRunOutInsideOfADraft) {
  const int32_t open = 1, close = 2, newline = 3;
  const GrammarSpec schema{.kind = GrammarSpec::Kind::JsonSchema, .text = kSchema};
  expect_same_texts([&] {
    std::vector<Request> requests;
    for (const int32_t budget : {0, 1, 5, 8, -1}) {
      for (const bool inside : {true, false}) {
        ThinkingBudget thinking{inside, budget, {open}, {close}, {newline, newline, close}};
        requests.push_back(
            constrained(6, budget + 2, make_thinking_constraint(std::move(thinking), compiler_->compile(schema))));
      }
    }
    return requests;
  });
}

TEST_P(DraftsOfGrammarsTest, GrammarsThatBeginWithATrigger) {
  const GrammarSpec schema{.kind = GrammarSpec::Kind::JsonSchema, .text = kSchema};
  expect_same_texts([&] {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 4; ++i)
      requests.push_back(constrained(6, i, compiler_->compile(schema, {.text = "A", .in_grammar = false})));
    return requests;
  });
}

// After a rollback a constraint allows the same tokens as before, at any point of the text.
TEST(Rollback, LeavesConstraintsAsTheyWere) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr int32_t kVocab = 96;
  GrammarCompiler compiler(json_vocabulary(kVocab, kVocab - 1));
  const GrammarSpec schema{.kind = GrammarSpec::Kind::JsonSchema, .text = kSchema};
  const auto thinking = [&](int32_t tokens) {
    return make_thinking_constraint({true, tokens, {1}, {2, 4}, {3, 2, 4}}, compiler.compile(schema));
  };
  using Maker = std::function<std::unique_ptr<Constraint>()>;
  const std::vector<Maker> makers{[&] { return compiler.compile(schema); },
                                  [&] { return compiler.compile(schema, {.text = "AB", .in_grammar = false}); },
                                  [&] { return thinking(6); }, [&] { return thinking(-1); }};
  using Mask = std::vector<uint32_t>;
  const auto mask_of = [](Constraint& c) {
    Mask mask(mask_words(kVocab));
    if (!c.fill_mask(mask)) std::fill(mask.begin(), mask.end(), ~0u);
    return mask;
  };
  const auto pick = [&](const Mask& mask) {
    std::vector<int32_t> allowed;
    for (int32_t t = 0; t < kVocab - 1; ++t) {
      if (mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) allowed.push_back(t);
    }
    return allowed.empty() ? -1 : allowed[random() % allowed.size()];
  };
  for (const Maker& make : makers) {
    for (int walk = 0; walk < 40; ++walk) {
      const auto tried = make(), plain = make();  // the same tokens with and without trials
      for (int length = 0; length < 40; ++length) {
        tried->mark();
        for (auto trials = random() % 5; trials-- > 0 && !tried->terminated() && !tried->failed();) {
          const int32_t token =
              random() % 4 == 0 ? static_cast<int32_t>(random() % (kVocab - 1)) : pick(mask_of(*tried));
          if (token >= 0) tried->accept(token);
        }
        tried->roll_back();
        const Mask mask = mask_of(*plain);
        ASSERT_EQ(mask_of(*tried), mask);
        ASSERT_EQ(tried->failed(), plain->failed());
        const int32_t token = pick(mask);
        if (token < 0) break;
        tried->accept(token);
        plain->accept(token);
        ASSERT_EQ(tried->terminated(), plain->terminated());
        if (plain->terminated()) break;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, DraftsTest, MR_EVERYWHERE, name_of);
INSTANTIATE_TEST_SUITE_P(Everywhere, DraftsOfGrammarsTest, MR_EVERYWHERE, name_of);

}  // namespace
}  // namespace millrace
