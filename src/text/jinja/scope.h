// The variables of a running template: a chain of scopes from the innermost body to the template.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "text/jinja/parse/ast.h"

namespace millrace::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<SymbolId, Value>> variables;
  bool captured = false;  // a macro may read it after its body has ended

  const Value* find(SymbolId id) const {
    for (const auto& [known, value] : variables) {
      if (known == id) return &value;
    }
    return nullptr;
  }
  void set(SymbolId id, Value value);
};

// Owns all scopes of a render. Macros hold plain pointers to them, which avoids reference cycles.
class ScopePool {
 public:
  Scope* acquire(Scope* parent);
  void release(Scope* scope);
  // Keeps the scope and its enclosing scopes until the end of the render.
  static void capture(Scope* scope);

 private:
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_;
};

}  // namespace millrace::jinja
