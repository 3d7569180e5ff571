// The part of the interpreter that evaluates expressions.
#include "text/jinja/access.h"
#include "text/jinja/builtin/filters.h"
#include "text/jinja/builtin/tests.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/repr.h"

namespace millrace::jinja {
namespace {

bool holds(Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::Equal:
      return equals(left, right);
    case Comparison::NotEqual:
      return !equals(left, right);
    case Comparison::Less:
      return less(left, right);
    case Comparison::LessOrEqual:
      return less_or_equal(left, right);
    case Comparison::Greater:
      return less(right, left);
    case Comparison::GreaterOrEqual:
      return less_or_equal(right, left);
    case Comparison::In:
      return contains(right, left);
    case Comparison::NotIn:
      break;
  }
  return !contains(right, left);
}

}  // namespace

Value Interpreter::lookup(SymbolId id) const {
  for (const Scope* scope = scope_; scope; scope = scope->parent) {
    if (const Value* value = scope->find(id)) return *value;
  }
  const std::optional<Value>& global = globals_[static_cast<size_t>(id)];
  if (global) return *global;
  return Value::undefined({.reason = UndefinedInfo::Reason::Name, .name = parsed_.symbols.name(id), .owner = {}});
}

Value Interpreter::evaluate(const Expression& expression) {
  using Kind = Expression::Kind;
  const DepthGuard depth;
  Budget::spend();
  line_ = expression.line;
  switch (expression.kind) {
    case Kind::Literal:
      return static_cast<const Literal&>(expression).value;
    case Kind::Name:
      return lookup(static_cast<const Name&>(expression).id);
    case Kind::List:
    case Kind::Tuple:
      return evaluate_collection(static_cast<const Collection&>(expression));
    case Kind::Concat:
      return evaluate_concat(static_cast<const Collection&>(expression));
    case Kind::Dict:
      return evaluate_dict(static_cast<const DictLiteral&>(expression));
    case Kind::Negate:
    case Kind::Plus:
    case Kind::Not:
      return evaluate_unary(static_cast<const Unary&>(expression));
    case Kind::Binary:
      return evaluate_binary(static_cast<const Binary&>(expression));
    case Kind::And:
    case Kind::Or:
      return evaluate_logic(static_cast<const Binary&>(expression));
    case Kind::Compare:
      return evaluate_compare(static_cast<const Compare&>(expression));
    case Kind::Conditional:
      return evaluate_conditional(static_cast<const Conditional&>(expression));
    case Kind::Attribute:
      return evaluate_attribute(static_cast<const Attribute&>(expression));
    case Kind::Item:
      return evaluate_item(static_cast<const Item&>(expression));
    case Kind::Slice:
      return evaluate_slice(static_cast<const Slice&>(expression));
    case Kind::Call:
      return evaluate_call(static_cast<const Call&>(expression));
    case Kind::Filter:
    case Kind::Test:
      return evaluate_applied(static_cast<const Applied&>(expression));
    case Kind::NamespaceTarget:
      break;
  }
  fail_template("a namespace's attribute can only be assigned here");
}

Value Interpreter::evaluate_collection(const Collection& expression) {
  std::vector<Value> items;
  items.reserve(expression.items.size());
  for (const ExpressionPtr& item : expression.items) items.push_back(evaluate(*item));
  return expression.kind == Expression::Kind::List ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value Interpreter::evaluate_concat(const Collection& expression) {
  TextBuilder text;
  for (const ExpressionPtr& item : expression.items) text.append_value(evaluate(*item));
  return text.take_value();
}

Value Interpreter::evaluate_dict(const DictLiteral& expression) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : expression.entries) {
    Value evaluated_key = evaluate(*key);
    dict->set(std::move(evaluated_key), evaluate(*value));
  }
  return Value::dict(dict);
}

Value Interpreter::evaluate_unary(const Unary& expression) {
  const Value operand = evaluate(*expression.operand);
  if (expression.kind == Expression::Kind::Not) return Value::boolean(!truthy(operand));
  return expression.kind == Expression::Kind::Negate ? negate(operand) : plus(operand);
}

Value Interpreter::evaluate_binary(const Binary& expression) {
  const Value left = evaluate(*expression.left);
  const Value right = evaluate(*expression.right);
  line_ = expression.line;
  return apply(expression.op, left, right);
}

Value Interpreter::evaluate_logic(const Binary& expression) {
  Value left = evaluate(*expression.left);
  const bool decided = truthy(left) == (expression.kind == Expression::Kind::Or);
  return decided ? left : evaluate(*expression.right);
}

Value Interpreter::evaluate_compare(const Compare& expression) {
  Value left = evaluate(*expression.first);
  for (const auto& [comparison, operand] : expression.rest) {
    Value right = evaluate(*operand);
    line_ = expression.line;
    if (!holds(comparison, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_conditional(const Conditional& expression) {
  if (truthy(evaluate(*expression.test))) return evaluate(*expression.then);
  if (expression.otherwise) return evaluate(*expression.otherwise);
  return Value::undefined_hint(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", expression.line));
}

Value Interpreter::evaluate_attribute(const Attribute& expression) {
  const Value object = evaluate(*expression.object);
  line_ = expression.line;
  return get_attribute(object, expression.name);
}

Value Interpreter::evaluate_item(const Item& expression) {
  const Value object = evaluate(*expression.object);
  const Value key = evaluate(*expression.key);
  line_ = expression.line;
  return get_item(object, key);
}

Value Interpreter::evaluate_slice(const Slice& expression) {
  const auto part = [&](const ExpressionPtr& node) { return node ? evaluate(*node) : Value(); };
  const Value object = evaluate(*expression.object);
  const Value start = part(expression.start), stop = part(expression.stop), step = part(expression.step);
  line_ = expression.line;
  return get_slice(object, start, stop, step);
}

Arguments Interpreter::evaluate_arguments(const CallArguments& call) {
  Arguments arguments;
  for (const ExpressionPtr& argument : call.positional) arguments.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : call.named) arguments.named.emplace_back(name, evaluate(*argument));
  if (call.star) {
    for (Value& item : to_vector(evaluate(*call.star))) arguments.positional.push_back(std::move(item));
  }
  if (call.double_star) {
    const Value named = evaluate(*call.double_star);
    require_defined(named);
    if (!named.is_dict()) fail_template("argument after ** must be a mapping, not {}", named.type_name());
    for (const auto& [key, value] : named.as_dict().entries()) {
      if (!key.is_string()) fail_template("keywords must be strings");
      Budget::spend(static_cast<int64_t>(arguments.named.size()));
      if (arguments.find_named(key.str())) fail_template("got multiple values for keyword argument {}", repr(key));
      arguments.named.emplace_back(key.str(), value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Call& expression, const Value* caller) {
  const Value callee = evaluate(*expression.callee);
  Arguments arguments = evaluate_arguments(expression.arguments);
  line_ = expression.line;
  if (caller) {
    if (arguments.find_named("caller")) fail_template("a call block passes 'caller' itself");
    arguments.named.emplace_back("caller", *caller);
  }
  return call(callee, arguments);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  if (!callee.is_object()) fail_template("'{}' object is not callable", callee.type_name());
  return settle_content(callee.as_object()->call(*this, arguments), has_content(arguments));
}

Value Interpreter::evaluate_applied(const Applied& expression) {
  const Value subject = expression.subject ? evaluate(*expression.subject) : block_text_;
  const Arguments arguments = evaluate_arguments(expression.arguments);
  line_ = expression.line;
  if (expression.kind == Expression::Kind::Filter) return apply_filter(expression.name, subject, arguments);
  return Value::boolean(apply_test(expression.name, subject, arguments));
}

Value Interpreter::apply_filter(std::string_view name, const Value& subject, const Arguments& arguments) {
  const FilterFunction filter = find_filter(name);
  if (!filter) fail_template("No filter named {} found.", in_quotes(name));
  Budget::spend();
  return settle_content(filter(*this, subject, arguments), has_content(subject) || has_content(arguments));
}

bool Interpreter::apply_test(std::string_view name, const Value& subject, const Arguments& arguments) {
  const TestFunction test = find_test(name);
  if (!test) fail_template("No test named {} found.", in_quotes(name));
  Budget::spend();
  return test(subject, arguments);
}

}  // namespace millrace::jinja
