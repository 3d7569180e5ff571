// A budget for reasoning: the model thinks freely, and when its budget is used up it is made to close its thoughts.
// Then another constraint may take over for the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sampling/constraint.h"

namespace millrace {

struct ThinkingBudget {
  bool begins_inside = false;   // the prompt ends inside of <think>; else the answer may open it with its first token
  int32_t tokens = -1;          // -1: no limit
  std::vector<int32_t> open;    // the tokens of "<think>"
  std::vector<int32_t> close;   // the tokens of "</think>": the thoughts end after them
  std::vector<int32_t> forced;  // what is said when the budget is used up; ends with `close`
};

// `answer` may be null: what follows the thoughts is free.
std::unique_ptr<Constraint> make_thinking_constraint(ThinkingBudget budget, std::unique_ptr<Constraint> answer);

}  // namespace millrace
