// A grammar made ready for one vocabulary.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "sampling/constraint.h"

namespace millrace {

// A constraint that can be led by text, too.
class TextConstraint : public Constraint {
 public:
  virtual bool allows(std::string_view text) = 0;  // what comes next may begin with this
  virtual void accept_text(std::string_view text) = 0;
};

class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  // A constraint for one sequence; it keeps what it needs alive.
  virtual std::unique_ptr<TextConstraint> follow() = 0;
  virtual size_t memory() const = 0;
};

}  // namespace millrace
