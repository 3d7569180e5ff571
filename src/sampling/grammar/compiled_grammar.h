// A grammar made ready for one vocabulary.
#pragma once

#include <cstddef>
#include <memory>

#include "sampling/constraint.h"

namespace millrace {

class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  // A constraint for one sequence; it keeps what it needs alive.
  virtual std::unique_ptr<Constraint> follow() = 0;
  virtual size_t memory() const = 0;
};

}  // namespace millrace
