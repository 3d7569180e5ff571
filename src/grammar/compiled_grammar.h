// A grammar compiled for one vocabulary.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "sampling/constraint.h"

namespace millrace {

// A constraint that also takes text instead of tokens.
class TextConstraint : public Constraint {
 public:
  virtual bool allows(std::string_view text) = 0;  // whether the text may come next
  virtual void accept_text(std::string_view text) = 0;
};

class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  // A constraint for one sequence. It shares ownership of the grammar.
  virtual std::unique_ptr<TextConstraint> follow() = 0;
  virtual size_t memory() const = 0;
};

}  // namespace millrace
