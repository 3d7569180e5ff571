// An answer that follows one of several constraints, such as tool calls or a schema.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sampling/constraint.h"

namespace millrace {

struct Alternative {
  std::unique_ptr<Constraint> form;
  int32_t marker = -1;  // a special token that begins this alternative, since grammars cannot; -1: none
};

// Alternatives that do not allow a token drop out when it comes.
std::unique_ptr<Constraint> make_either_constraint(std::vector<Alternative> alternatives, int64_t vocab);

}  // namespace millrace
