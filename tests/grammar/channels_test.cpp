#include "grammar/channels.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

// The vocabulary: some special tokens, some words, and two end tokens.
enum Token : int32_t {
  kStart,
  kChannel,
  kMessage,
  kEnd,
  kConstrain,
  kReturn,
  kCall,
  kAssistant,
  kAnalysis,
  kFinal,
  kCommentary,
  kToF,
  kToG,
  kJson,
  kA,
  kB,
  kTokens
};
const std::vector<std::string> kTexts = {"<|start|>",       "<|channel|>", "<|message|>", "<|end|>",
                                         "<|constrain|>",   "<|return|>",  "<|call|>",    "assistant",
                                         "analysis",        "final",       "commentary",  " to=functions.f",
                                         " to=functions.g", "json",        "a",           "b"};

// A body of one token.
class One : public Constraint {
 public:
  explicit One(int32_t token) : token_(token) {}
  bool fill_mask(std::span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0u);
    words[0] |= 1u << (done_ ? kReturn : token_);
    return true;
  }
  void accept(int32_t token) override { done_ = token == token_; }
  void mark() override { marked_ = done_; }
  void roll_back() override { done_ = marked_; }
  bool terminated() const override { return false; }

 private:
  int32_t token_;
  bool done_ = false, marked_ = false;
};

ChannelRules rules(bool strict, int32_t budget = -1) {
  return {.start = kStart,
          .channel = kChannel,
          .message = kMessage,
          .end = kEnd,
          .assistant = {kAssistant},
          .analysis = {kChannel, kAnalysis, kMessage},
          .forbidden = {kStart, kChannel, kMessage, kConstrain, kReturn, kCall},
          .opened = {},
          .budget = budget,
          .strict = strict,
          .text_of = [](int32_t token) { return kTexts[static_cast<size_t>(token)]; }};
}

ChannelRoute final_route(std::unique_ptr<Constraint> body) {
  return {{kChannel, kFinal, kMessage}, "", std::move(body)};
}
ChannelRoute call_route(const std::string& name, int32_t to, int32_t body) {
  return {{kChannel, kCommentary, to, kConstrain, kJson, kMessage}, name, std::make_unique<One>(body)};
}
template <class... Routes>
std::vector<ChannelRoute> list(Routes... routes) {
  std::vector<ChannelRoute> all;
  (all.push_back(std::move(routes)), ...);
  return all;
}

// The allowed tokens; empty: any token.
std::vector<int32_t> allowed(Constraint& constraint) {
  uint32_t words[1] = {};
  std::vector<int32_t> tokens;
  if (!constraint.fill_mask(words)) return tokens;
  for (int32_t token = 0; token < kTokens; ++token) {
    if (words[0] >> token & 1) tokens.push_back(token);
  }
  return tokens;
}

void accept(Constraint& constraint, std::initializer_list<int32_t> tokens) {
  for (const int32_t token : tokens) {
    const auto may = allowed(constraint);
    EXPECT_TRUE(may.empty() || std::find(may.begin(), may.end(), token) != may.end())
        << kTexts[static_cast<size_t>(token)];
    constraint.accept(token);
  }
}

using List = std::vector<int32_t>;

TEST(Channels, TheGrammarHoldsInTheFinalChannel) {
  const auto c = make_channel_constraint(rules(true), list(final_route(std::make_unique<One>(kA))));
  EXPECT_EQ(allowed(*c), List{kChannel});
  accept(*c, {kChannel});
  EXPECT_EQ(allowed(*c), (List{kAnalysis, kFinal}));
  accept(*c, {kAnalysis, kMessage});
  EXPECT_EQ(allowed(*c), (List{kEnd, kAssistant, kAnalysis, kFinal, kCommentary, kToF, kToG, kJson, kA, kB}));
  accept(*c, {kB, kB, kEnd});
  EXPECT_EQ(allowed(*c), List{kStart});
  accept(*c, {kStart, kAssistant, kChannel});
  EXPECT_EQ(allowed(*c), List{kFinal}) << "one analysis";
  accept(*c, {kFinal, kMessage});
  EXPECT_EQ(allowed(*c), List{kA});
  accept(*c, {kA});
  EXPECT_EQ(allowed(*c), List{kReturn});
}

TEST(Channels, AForcedCallNamesATool) {
  const auto c = make_channel_constraint(rules(true), list(call_route("f", kToF, kA), call_route("g", kToG, kB)));
  accept(*c, {kChannel, kCommentary});
  EXPECT_EQ(allowed(*c), (List{kToF, kToG}));
  accept(*c, {kToG, kConstrain, kJson, kMessage});
  EXPECT_EQ(allowed(*c), List{kB});
}

TEST(Channels, ABudgetEndsTheAnalysis) {
  const auto c = make_channel_constraint(rules(true, 2), list(final_route(std::make_unique<One>(kA))));
  accept(*c, {kChannel, kAnalysis, kMessage, kB, kB});
  accept(*c, {kEnd, kStart, kAssistant, kChannel, kFinal, kMessage});
  EXPECT_EQ(allowed(*c), List{kA});

  const auto free = make_channel_constraint(rules(false, 2), list(final_route(nullptr)));
  accept(*free, {kChannel, kAnalysis, kMessage, kB, kB});
  for (const int32_t token : {kEnd, kStart, kAssistant, kChannel, kFinal, kMessage}) {
    EXPECT_EQ(allowed(*free), List{token});
    free->accept(token);
  }
  EXPECT_TRUE(allowed(*free).empty());

  const auto none = make_channel_constraint(rules(false, 0), list(final_route(nullptr)));
  accept(*none, {kChannel, kAnalysis, kMessage});
  EXPECT_EQ(allowed(*none), List{kEnd});
}

TEST(Channels, AFreeAnswerIsConstrainedInTheCallThatItChooses) {
  const auto c = make_channel_constraint(rules(false), list(call_route("f", kToF, kA)));
  for (const int32_t token :
       {kChannel, kAnalysis, kMessage, kB,     kEnd,       kStart, kAssistant, kChannel,    kCommentary, kToG,
        kMessage, kB,        kEnd,     kStart, kAssistant, kToF,   kChannel,   kCommentary, kJson,       kMessage}) {
    EXPECT_TRUE(allowed(*c).empty()) << token;
    c->accept(token);
  }
  EXPECT_EQ(allowed(*c), List{kA});
}

TEST(Channels, ThePromptMayOpenTheFirstMessage) {
  ChannelRules opened = rules(true);
  opened.opened = {kChannel, kFinal, kMessage};
  const auto c = make_channel_constraint(std::move(opened), list(final_route(std::make_unique<One>(kA))));
  EXPECT_EQ(allowed(*c), List{kA});
  ChannelRules silent = rules(true);
  silent.analysis.clear();
  const auto d = make_channel_constraint(std::move(silent), list(final_route(std::make_unique<One>(kA))));
  accept(*d, {kChannel});
  EXPECT_EQ(allowed(*d), List{kFinal});
}

TEST(Channels, RollBackFromAnyState) {
  const std::vector<int32_t> way{kChannel,   kAnalysis, kMessage, kB,       kEnd, kStart,
                                 kAssistant, kChannel,  kFinal,   kMessage, kA};
  for (size_t marked = 0; marked < way.size(); ++marked) {
    for (size_t far = marked; far < way.size(); ++far) {
      const auto c = make_channel_constraint(rules(true, 9), list(final_route(std::make_unique<One>(kA))));
      for (size_t i = 0; i < marked; ++i) c->accept(way[i]);
      const auto before = allowed(*c);
      c->mark();
      for (size_t i = marked; i < far; ++i) c->accept(way[i]);
      c->roll_back();
      EXPECT_EQ(allowed(*c), before) << marked << " " << far;
      for (size_t i = marked; i < way.size(); ++i) accept(*c, {way[i]});
    }
  }
}

}  // namespace
}  // namespace millrace
