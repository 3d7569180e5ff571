// Traverses the tree: the parts of an expression, and all names of a body with their roles.
#pragma once

#include "base/function_ref.h"
#include "text/jinja/parse/ast.h"

namespace millrace::jinja {

void for_each_part(const Expression& expression, FunctionRef<void(const Expression&)> visit);

enum class NameRole { Load, Store, Parameter };
using NameVisitor = FunctionRef<void(SymbolId id, NameRole role, int line)>;

void walk_names(const Expression& expression, NameVisitor visit);
void walk_target(const Expression& target, NameRole role, NameVisitor visit);
// Descends into loops, macros and all other bodies except blocks, which have separate scopes.
void walk_names(const Body& body, NameVisitor visit);
void walk_names(const Statement& statement, NameVisitor visit);

}  // namespace millrace::jinja
