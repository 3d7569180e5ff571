// The variables of a running template: a chain of small scopes from the innermost body to the template itself.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"

namespace millrace::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<SymbolId, Value>> variables;
  bool captured = false;  // a macro may still look into it when its body is done

  const Value* find(SymbolId id) const {
    for (const auto& [known, value] : variables) {
      if (known == id) return &value;
    }
    return nullptr;
  }
  void set(SymbolId id, Value value);
};

// Owns every scope of one render, so that macros can refer to them without keeping each other alive in a circle.
class ScopePool {
 public:
  Scope* acquire(Scope* parent);
  void release(Scope* scope);
  // Keeps the scope and those around it until the end of the render.
  static void capture(Scope* scope);

 private:
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_;
};

}  // namespace millrace::jinja
