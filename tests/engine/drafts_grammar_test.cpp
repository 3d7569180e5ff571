// Drafts under constraints: grammars and thinking budgets hold, and texts equal those without drafts.
#include "engine/drafts_fixture.h"
#include "fresh_seed.h"
#include "grammar/grammar_compiler.h"
#include "grammar/thinking.h"

namespace millrace {
namespace {

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
  const uint32_t seed = fresh_seed();
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

INSTANTIATE_TEST_SUITE_P(Everywhere, DraftsOfGrammarsTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
