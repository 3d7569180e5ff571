// Walking over the tree: the parts of an expression, and every name in a body with the role it plays.
#pragma once

#include "base/function_ref.h"
#include "text/jinja/ast.h"

namespace millrace::jinja {

void for_each_part(const Expression& expression, FunctionRef<void(const Expression&)> visit);

enum class NameRole { Load, Store, Parameter };
using NameVisitor = FunctionRef<void(SymbolId id, NameRole role, int line)>;

void walk_names(const Expression& expression, NameVisitor visit);
void walk_target(const Expression& target, NameRole role, NameVisitor visit);
// Into loops, macros and all other bodies within, but not into blocks, which are apart.
void walk_names(const Body& body, NameVisitor visit);
void walk_names(const Statement& statement, NameVisitor visit);

}  // namespace millrace::jinja
