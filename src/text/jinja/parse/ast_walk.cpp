#include "text/jinja/parse/ast_walk.h"

namespace millrace::jinja {
namespace {

using Visit = FunctionRef<void(const Expression&)>;

void visit_if(const ExpressionPtr& expression, Visit visit) {
  if (expression) visit(*expression);
}

void for_each_argument(const CallArguments& arguments, Visit visit) {
  for (const ExpressionPtr& argument : arguments.positional) visit(*argument);
  for (const auto& [name, argument] : arguments.named) visit(*argument);
  visit_if(arguments.star, visit);
  visit_if(arguments.double_star, visit);
}

void walk_signature(const Signature& signature, int line, NameVisitor visit) {
  for (const SymbolId id : signature.parameters) visit(id, NameRole::Parameter, line);
  for (const ExpressionPtr& value : signature.defaults) walk_names(*value, visit);
}

void walk_for(const For& loop, NameVisitor visit) {
  walk_target(*loop.target, NameRole::Store, visit);
  walk_names(*loop.iterable, visit);
  walk_names(loop.body.statements, visit);
  walk_names(loop.otherwise.statements, visit);
  if (loop.filter) walk_names(*loop.filter, visit);
}

void walk_if(const If& statement, NameVisitor visit) {
  for (const auto& [test, body] : statement.branches) {
    walk_names(*test, visit);
    walk_names(body, visit);
  }
  walk_names(statement.otherwise, visit);
}

}  // namespace

void for_each_part(const Expression& expression, Visit visit) {
  using Kind = Expression::Kind;
  switch (expression.kind) {
    case Kind::Literal:
    case Kind::Name:
    case Kind::NamespaceTarget:
      return;
    case Kind::List:
    case Kind::Tuple:
    case Kind::Concat:
      for (const ExpressionPtr& item : static_cast<const Collection&>(expression).items) visit(*item);
      return;
    case Kind::Dict:
      for (const auto& [key, value] : static_cast<const DictLiteral&>(expression).entries) visit(*key), visit(*value);
      return;
    case Kind::Negate:
    case Kind::Plus:
    case Kind::Not:
      return visit(*static_cast<const Unary&>(expression).operand);
    case Kind::Binary:
    case Kind::And:
    case Kind::Or:
      visit(*static_cast<const Binary&>(expression).left);
      return visit(*static_cast<const Binary&>(expression).right);
    case Kind::Compare:
      visit(*static_cast<const Compare&>(expression).first);
      for (const auto& [op, operand] : static_cast<const Compare&>(expression).rest) visit(*operand);
      return;
    case Kind::Conditional: {
      const auto& node = static_cast<const Conditional&>(expression);
      visit(*node.test);
      visit(*node.then);
      return visit_if(node.otherwise, visit);
    }
    case Kind::Attribute:
      return visit(*static_cast<const Attribute&>(expression).object);
    case Kind::Item:
      visit(*static_cast<const Item&>(expression).object);
      return visit(*static_cast<const Item&>(expression).key);
    case Kind::Slice: {
      const auto& node = static_cast<const Slice&>(expression);
      for (const ExpressionPtr* part : {&node.object, &node.start, &node.stop, &node.step}) visit_if(*part, visit);
      return;
    }
    case Kind::Call:
      visit(*static_cast<const Call&>(expression).callee);
      return for_each_argument(static_cast<const Call&>(expression).arguments, visit);
    case Kind::Filter:
    case Kind::Test:
      visit_if(static_cast<const Applied&>(expression).subject, visit);
      return for_each_argument(static_cast<const Applied&>(expression).arguments, visit);
  }
}

void walk_names(const Expression& expression, NameVisitor visit) {
  if (expression.kind == Expression::Kind::Name) {
    return visit(static_cast<const Name&>(expression).id, NameRole::Load, expression.line);
  }
  if (expression.kind == Expression::Kind::NamespaceTarget) {
    return visit(static_cast<const NamespaceTarget&>(expression).id, NameRole::Load, expression.line);
  }
  for_each_part(expression, [&](const Expression& part) { walk_names(part, visit); });
}

void walk_target(const Expression& target, NameRole role, NameVisitor visit) {
  if (target.kind == Expression::Kind::Name) {
    visit(static_cast<const Name&>(target).id, role, target.line);
  } else if (target.kind == Expression::Kind::Tuple) {
    for (const ExpressionPtr& item : static_cast<const Collection&>(target).items) walk_target(*item, role, visit);
  } else {
    walk_names(target, visit);
  }
}

void walk_names(const Body& body, NameVisitor visit) {
  for (const auto& statement : body) walk_names(*statement, visit);
}

void walk_names(const Statement& statement, NameVisitor visit) {
  using Kind = Statement::Kind;
  switch (statement.kind) {
    case Kind::Output:
      for (const ExpressionPtr& item : static_cast<const Output&>(statement).expressions) walk_names(*item, visit);
      return;
    case Kind::If:
      return walk_if(static_cast<const If&>(statement), visit);
    case Kind::For:
      return walk_for(static_cast<const For&>(statement), visit);
    case Kind::Set:
      walk_target(*static_cast<const Set&>(statement).target, NameRole::Store, visit);
      return walk_names(*static_cast<const Set&>(statement).value, visit);
    case Kind::SetBlock: {
      const auto& node = static_cast<const SetBlock&>(statement);
      walk_target(*node.target, NameRole::Store, visit);
      if (node.filter) walk_names(*node.filter, visit);
      return walk_names(node.body.statements, visit);
    }
    case Kind::Macro:
      walk_signature(static_cast<const Macro&>(statement).signature, statement.line, visit);
      return walk_names(static_cast<const Macro&>(statement).body.statements, visit);
    case Kind::CallBlock: {
      const auto& node = static_cast<const CallBlock&>(statement);
      walk_names(*node.call, visit);
      walk_signature(node.signature, node.line, visit);
      return walk_names(node.body.statements, visit);
    }
    case Kind::FilterBlock:
      walk_names(static_cast<const FilterBlock&>(statement).body.statements, visit);
      return walk_names(*static_cast<const FilterBlock&>(statement).filter, visit);
    case Kind::With: {
      const auto& node = static_cast<const With&>(statement);
      for (const auto& [target, value] : node.assignments) walk_target(*target, NameRole::Parameter, visit);
      for (const auto& [target, value] : node.assignments) walk_names(*value, visit);
      return walk_names(node.body.statements, visit);
    }
    case Kind::Generation:
      return walk_names(static_cast<const Generation&>(statement).body.statements, visit);
    case Kind::Text:
    case Kind::Block:
    case Kind::Break:
    case Kind::Continue:
    case Kind::NeedsLoader:
      return;
  }
}

}  // namespace millrace::jinja
