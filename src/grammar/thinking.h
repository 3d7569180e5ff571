// A token budget for reasoning. The reasoning is free until the budget is used up; then the constraint forces the
// closing text. Another constraint can apply to the answer that follows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sampling/constraint.h"
#include "text/tokenizer.h"

namespace millrace {

struct ThinkingBudget {
  bool begins_inside =
      false;            // the prompt ends inside of <think>; otherwise the answer may open it with its first token
  int32_t tokens = -1;  // -1: no limit
  std::vector<int32_t> open;    // the tokens of "<think>"
  std::vector<int32_t> close;   // the tokens of "</think>", which end the reasoning
  std::vector<int32_t> forced;  // tokens forced when the budget is used up; they end with `close`
};

// `answer` may be null: the answer is free then.
std::unique_ptr<Constraint> make_thinking_constraint(ThinkingBudget budget, std::unique_ptr<Constraint> answer);

// The same with the tokens of <think> and </think>. Null: nothing is constrained.
std::unique_ptr<Constraint> behind_reasoning(const Tokenizer& tokenizer, bool begins_inside, int32_t tokens,
                                             std::unique_ptr<Constraint> answer);

}  // namespace millrace
