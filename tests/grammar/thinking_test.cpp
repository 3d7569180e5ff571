#include "grammar/thinking.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr int32_t kOpen = 40, kClose = 41, kNewline = 42;

// Allows one token only.
class Only : public Constraint {
 public:
  explicit Only(int32_t token) : token_(token) {}
  bool fill_mask(std::span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0u);
    words[static_cast<size_t>(token_) / 32] |= 1u << (token_ % 32);
    return true;
  }
  void accept(int32_t) override { ++accepted; }
  void mark() override { marked_ = accepted; }
  void roll_back() override { accepted = marked_; }
  bool terminated() const override { return accepted == 2; }
  int accepted = 0;

 private:
  int32_t token_;
  int marked_ = 0;
};

ThinkingBudget budget(bool inside, int32_t tokens) { return {inside, tokens, {kOpen}, {kClose}, {kNewline, kClose}}; }

// -1: any token.
int32_t only_allowed(Constraint& constraint) {
  uint32_t words[2] = {};
  if (!constraint.fill_mask(words)) return -1;
  int32_t found = -2;
  for (int32_t token = 0; token < 64; ++token) {
    if (words[token / 32] >> (token % 32) & 1) found = found == -2 ? token : 100;
  }
  return found;
}

TEST(Thinking, ClosesWhenTheBudgetIsUsedUp) {
  auto answer = std::make_unique<Only>(7);
  const auto constraint = make_thinking_constraint(budget(true, 3), std::move(answer));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(only_allowed(*constraint), -1);
    constraint->accept(1);
  }
  EXPECT_EQ(only_allowed(*constraint), kNewline);
  constraint->accept(kNewline);
  EXPECT_EQ(only_allowed(*constraint), kClose);
  constraint->accept(kClose);
  EXPECT_EQ(only_allowed(*constraint), 7);
  EXPECT_FALSE(constraint->terminated());
  constraint->accept(7);
  constraint->accept(7);
  EXPECT_TRUE(constraint->terminated());
}

TEST(Thinking, TheModelMayCloseEarlier) {
  const auto constraint = make_thinking_constraint(budget(true, 100), std::make_unique<Only>(7));
  constraint->accept(1);
  constraint->accept(kClose);
  EXPECT_EQ(only_allowed(*constraint), 7);
}

TEST(Thinking, TheAnswerMayBeginAtOnce) {
  const auto constraint = make_thinking_constraint(budget(false, 100), std::make_unique<Only>(7));
  EXPECT_EQ(only_allowed(*constraint), 100) << "both the answer and <think>";
  constraint->accept(7);
  EXPECT_EQ(only_allowed(*constraint), 7);
}

TEST(Thinking, OrWithThoughts) {
  const auto constraint = make_thinking_constraint(budget(false, 0), nullptr);
  EXPECT_EQ(only_allowed(*constraint), -1);
  constraint->accept(kOpen);
  EXPECT_EQ(only_allowed(*constraint), kNewline);
  constraint->accept(kNewline);
  constraint->accept(kClose);
  EXPECT_EQ(only_allowed(*constraint), -1);
}

}  // namespace
}  // namespace millrace
