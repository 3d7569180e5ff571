#include "text/jinja/parse/template_checks.h"

#include <unordered_set>

#include "text/jinja/builtin/filters.h"
#include "text/jinja/builtin/tests.h"
#include "text/jinja/parse/ast_walk.h"
#include "text/jinja/template_error.h"

namespace millrace::jinja {
namespace {

class Checker {
 public:
  struct Place {
    bool conditional = false;  // under an `if`: an unknown filter fails only if evaluated
    bool in_loop = false;
  };

  void check(const Body& body, Place place) {
    for (const auto& statement : body) check(*statement, place);
  }

 private:
  void check(const Statement& statement, Place place) {
    using Kind = Statement::Kind;
    const Place inner{.conditional = false, .in_loop = place.in_loop};
    const Place function{.conditional = false, .in_loop = false};
    switch (statement.kind) {
      case Kind::Text:
      case Kind::NeedsLoader:
        break;
      case Kind::Output:
        for (const ExpressionPtr& item : static_cast<const Output&>(statement).expressions) check(*item, place);
        break;
      case Kind::If:
        place.conditional = true;
        for (const auto& [test, body] : static_cast<const If&>(statement).branches) {
          check(*test, place);
          check(body, place);
        }
        check(static_cast<const If&>(statement).otherwise, place);
        break;
      case Kind::For:
        check_loop(static_cast<const For&>(statement), place);
        break;
      case Kind::Set:
        check(*static_cast<const Set&>(statement).value, place);
        break;
      case Kind::SetBlock:
        if (static_cast<const SetBlock&>(statement).filter)
          check(*static_cast<const SetBlock&>(statement).filter, inner);
        check(static_cast<const SetBlock&>(statement).body.statements, inner);
        break;
      case Kind::Macro:
        check(static_cast<const Macro&>(statement).signature, function);
        check(static_cast<const Macro&>(statement).body.statements, function);
        break;
      case Kind::CallBlock:
        check(*static_cast<const CallBlock&>(statement).call, place);
        check(static_cast<const CallBlock&>(statement).signature, function);
        check(static_cast<const CallBlock&>(statement).body.statements, function);
        break;
      case Kind::FilterBlock:
        check(*static_cast<const FilterBlock&>(statement).filter, inner);
        check(static_cast<const FilterBlock&>(statement).body.statements, inner);
        break;
      case Kind::With:
        for (const auto& [target, value] : static_cast<const With&>(statement).assignments) check(*value, place);
        check(static_cast<const With&>(statement).body.statements, inner);
        break;
      case Kind::Generation:
        check(static_cast<const Generation&>(statement).body.statements, function);
        break;
      case Kind::Block:
        if (!blocks_.insert(static_cast<const Block&>(statement).name).second) {
          fail_template_at(statement.line, "block '{}' defined twice", static_cast<const Block&>(statement).name);
        }
        check(static_cast<const Block&>(statement).body.statements, function);
        break;
      case Kind::Break:
      case Kind::Continue:
        if (!place.in_loop) {
          fail_template_at(statement.line, "'{}' outside loop", statement.kind == Kind::Break ? "break" : "continue");
        }
        break;
    }
  }

  void check_loop(const For& loop, Place place) {
    check(*loop.iterable, place);
    if (loop.filter) check(*loop.filter, {});
    check(loop.body.statements, {.conditional = false, .in_loop = true});
    check(loop.otherwise.statements, {.conditional = false, .in_loop = place.in_loop && !loop.recursive});
  }

  void check(const Signature& signature, Place place) {
    for (const ExpressionPtr& value : signature.defaults) check(*value, place);
  }

  void check(const Expression& expression, Place place) {
    using Kind = Expression::Kind;
    if (expression.kind == Kind::Conditional) place.conditional = true;
    if (!place.conditional && expression.kind == Kind::Filter) {
      const std::string& name = static_cast<const Applied&>(expression).name;
      if (!find_filter(name)) fail_template_at(expression.line, "No filter named {}.", in_quotes(name));
    }
    if (!place.conditional && expression.kind == Kind::Test) {
      const std::string& name = static_cast<const Applied&>(expression).name;
      if (!find_test(name)) fail_template_at(expression.line, "No test named {}.", in_quotes(name));
    }
    for_each_part(expression, [&](const Expression& part) { check(part, place); });
  }

  std::unordered_set<std::string> blocks_;
};

}  // namespace

void check_template(const Template& parsed) { Checker().check(parsed.body.statements, {}); }

}  // namespace millrace::jinja
