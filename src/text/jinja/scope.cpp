#include "text/jinja/scope.h"

#include "text/jinja/budget.h"

namespace millrace::jinja {

void Scope::set(SymbolId id, Value value) {
  for (auto& [known, old] : variables) {
    if (known == id) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(id, std::move(value));
}

Scope* ScopePool::acquire(Scope* parent) {
  Scope* scope;
  if (free_.empty()) {
    scope = &scopes_.emplace_back();
  } else {
    scope = free_.back();
    free_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void ScopePool::release(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_.push_back(scope);
}

void ScopePool::capture(Scope* scope) {
  for (; scope && !scope->captured; scope = scope->parent) scope->captured = true;
}

}  // namespace millrace::jinja
