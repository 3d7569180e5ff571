#include "text/jinja/interpreter.h"

#include "text/jinja/builtin/globals.h"
#include "text/jinja/interpreter_parts.h"
#include "text/jinja/loop.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/objects.h"
#include "text/jinja/value/repr.h"

namespace millrace::jinja {

Interpreter::Interpreter(const Template& parsed, const Dict& context, std::chrono::system_clock::time_point now)
    : parsed_(parsed), now_(now), globals_(parsed.symbols.size()), root_(scopes_.acquire(nullptr)), scope_(root_) {
  for (size_t id = 0; id < globals_.size(); ++id) {
    const std::string& name = parsed.symbols.name(static_cast<SymbolId>(id));
    const Value* variable = context.find(name);
    globals_[id] = variable ? std::optional(*variable) : find_global(name);
  }
}

Interpreter::~Interpreter() {
  std::vector<Value> held;
  for (const auto& object : kept_) {
    if (auto* loop = dynamic_cast<LoopObject*>(object.get())) {
      for (Value& value : loop->release()) held.push_back(std::move(value));
    } else if (auto* attributes = dynamic_cast<Namespace*>(object.get())) {
      for (auto& [name, value] : attributes->release()) held.push_back(std::move(value));
    }
  }
}

Value Interpreter::run() {
  Capture capture(*this);
  hide(parsed_.body);
  execute(parsed_.body.statements);
  return capture.take();
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  using Kind = Statement::Kind;
  const DepthGuard depth;
  Budget::spend();
  line_ = statement.line;
  switch (statement.kind) {
    case Kind::Text:
      out_->append(static_cast<const TextStatement&>(statement).text);
      return Flow::Normal;
    case Kind::Output:
      return execute_output(static_cast<const Output&>(statement));
    case Kind::If:
      return execute_if(static_cast<const If&>(statement));
    case Kind::For:
      return execute_for(static_cast<const For&>(statement));
    case Kind::Set:
      return execute_set(static_cast<const Set&>(statement));
    case Kind::SetBlock:
      return execute_set_block(static_cast<const SetBlock&>(statement));
    case Kind::Macro:
      return execute_macro(static_cast<const Macro&>(statement));
    case Kind::CallBlock:
      return execute_call_block(static_cast<const CallBlock&>(statement));
    case Kind::FilterBlock:
      return execute_filter_block(static_cast<const FilterBlock&>(statement));
    case Kind::With:
      return execute_with(static_cast<const With&>(statement));
    case Kind::Generation:
      return execute_scoped(static_cast<const Generation&>(statement).body, scope_);
    case Kind::Block:
      return execute_block(static_cast<const Block&>(statement));
    case Kind::Break:
      return Flow::Break;
    case Kind::Continue:
      return Flow::Continue;
    case Kind::NeedsLoader:
      break;
  }
  fail_template("'{}' needs another template, and a chat template stands alone",
                static_cast<const NeedsLoader&>(statement).tag);
}

Interpreter::Flow Interpreter::execute_output(const Output& statement) {
  for (const ExpressionPtr& expression : statement.expressions) {
    const Value value = evaluate(*expression);
    out_->append_value(value);
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::execute_if(const If& statement) {
  for (const auto& [test, body] : statement.branches) {
    if (truthy(evaluate(*test))) return execute(body);
  }
  return execute(statement.otherwise);
}

Interpreter::Flow Interpreter::execute_set(const Set& statement) {
  check_namespaces(*statement.target);
  const Value value = evaluate(*statement.value);
  line_ = statement.line;
  assign(*statement.target, value);
  return Flow::Normal;
}

Interpreter::Flow Interpreter::execute_set_block(const SetBlock& statement) {
  Value value;
  {
    const ScopeEntry scope(*this, scope_);
    hide(statement.body);
    Capture capture(*this);
    const Flow flow = execute(statement.body.statements);
    if (flow != Flow::Normal) return flow;
    value = capture.take();
    if (statement.filter) {
      block_text_ = value;
      value = evaluate(*statement.filter);
    }
  }
  assign(*statement.target, value);
  return Flow::Normal;
}

Interpreter::Flow Interpreter::execute_filter_block(const FilterBlock& statement) {
  const ScopeEntry scope(*this, scope_);
  hide(statement.body);
  {
    Capture capture(*this);
    const Flow flow = execute(statement.body.statements);
    if (flow != Flow::Normal) return flow;
    block_text_ = capture.take();
  }
  write_text(evaluate(*statement.filter));
  return Flow::Normal;
}

// For places where Jinja writes a result without str().
void Interpreter::write_text(const Value& value) {
  if (!value.is_string()) fail_template("sequence item: expected str instance, {} found", value.type_name());
  out_->append_value(value);
}

Interpreter::Flow Interpreter::execute_with(const With& statement) {
  std::vector<Value> values;
  for (const auto& [target, expression] : statement.assignments) values.push_back(evaluate(*expression));
  const ScopeEntry scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(*statement.assignments[i].first, values[i]);
  hide(statement.body);
  return execute(statement.body.statements);
}

Interpreter::Flow Interpreter::execute_block(const Block& statement) {
  if (statement.required) fail_template("Required block '{}' not found", statement.name);
  return execute_scoped(statement.body, statement.scoped ? scope_ : root_);
}

Interpreter::Flow Interpreter::execute_scoped(const ScopedBody& body, Scope* parent) {
  const ScopeEntry scope(*this, parent);
  hide(body);
  return execute(body.statements);
}

// A name that the body assigns hides the context's variable from the beginning of the body.
void Interpreter::hide(const ScopedBody& body) {
  for (const SymbolId id : body.hidden) {
    if (!globals_[static_cast<size_t>(id)]) continue;
    scope_->set(
        id, Value::undefined({.reason = UndefinedInfo::Reason::Name, .name = parsed_.symbols.name(id), .owner = {}}));
  }
}

void Interpreter::check_namespaces(const Expression& target) const {
  if (target.kind == Expression::Kind::Tuple) {
    for (const ExpressionPtr& item : static_cast<const Collection&>(target).items) check_namespaces(*item);
  } else if (target.kind == Expression::Kind::NamespaceTarget) {
    if (!lookup(static_cast<const NamespaceTarget&>(target).id).object_as<Namespace>()) {
      fail_template("cannot assign attribute on non-namespace object");
    }
  }
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == Expression::Kind::Name) {
    scope_->set(static_cast<const Name&>(target).id, value);
  } else if (target.kind == Expression::Kind::NamespaceTarget) {
    check_namespaces(target);
    const auto& attribute = static_cast<const NamespaceTarget&>(target);
    lookup(attribute.id).object_as<Namespace>()->set(attribute.attribute, value);
  } else {
    assign_tuple(static_cast<const Collection&>(target), value);
  }
}

void Interpreter::assign_tuple(const Collection& target, const Value& value) {
  const IteratorPtr items = iterate(value);
  std::vector<Value> values;
  while (values.size() <= target.items.size()) {
    std::optional<Value> item = items->next();
    if (!item) break;
    values.push_back(*std::move(item));
  }
  if (values.size() < target.items.size()) {
    fail_template("not enough values to unpack (expected {}, got {})", target.items.size(), values.size());
  }
  if (values.size() > target.items.size()) {
    fail_template("too many values to unpack (expected {})", target.items.size());
  }
  for (size_t i = 0; i < values.size(); ++i) assign(*target.items[i], values[i]);
}

}  // namespace millrace::jinja
