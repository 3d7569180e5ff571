#include "text/jinja/macro.h"

#include <algorithm>

#include "text/jinja/interpreter_parts.h"
#include "text/jinja/template_error.h"

namespace millrace::jinja {
namespace {

// Removes and returns a named argument.
std::optional<Value> take_named(std::vector<std::pair<std::string, Value>>& named, std::string_view name) {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
  if (found == named.end()) return std::nullopt;
  Value value = std::move(found->second);
  named.erase(found);
  return value;
}

Value dict_of(const std::vector<std::pair<std::string, Value>>& named) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : named) dict->set(Value::string(name), value);
  return Value::dict(dict);
}

Value not_given(std::string_view name) {
  return Value::undefined_hint(fmt::format("parameter {} was not provided", in_quotes(name)));
}

}  // namespace

std::optional<Value> MacroObject::attribute(std::string_view name) {
  if (name == "name") return name_.empty() ? Value() : Value::string(name_);
  if (name == "catch_kwargs") return Value::boolean(signature_.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(signature_.uses_varargs);
  if (name == "caller") return Value::boolean(signature_.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const SymbolId id : signature_.parameters) names.push_back(Value::string(symbols_.name(id)));
  return Value::tuple(std::move(names));
}

Value MacroObject::call(Interpreter& interpreter, const Arguments& arguments) {
  return interpreter.call_macro(signature_, body_, closure_, name_, arguments);
}

Value Interpreter::call_macro(const Signature& signature, const ScopedBody& body, Scope* closure, std::string_view name,
                              const Arguments& arguments) {
  const DepthGuard depth;
  const ScopeEntry scope(*this, closure);
  const std::vector<SymbolId>& parameters = signature.parameters;
  const size_t given = std::min(arguments.positional.size(), parameters.size());
  auto named = arguments.named;
  std::vector<bool> missing(parameters.size(), false);
  bool caller_is_parameter = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& parameter = parsed_.symbols.name(parameters[i]);
    std::optional<Value> value = i < given ? std::optional(arguments.positional[i]) : take_named(named, parameter);
    missing[i] = !value;
    caller_is_parameter |= parameter == "caller";
    scope_->set(parameters[i], value ? *std::move(value) : not_given(parameter));
  }
  // The scope analysis has interned the names of the special variables.
  const auto set_special = [&](std::string_view special, Value value) {
    scope_->set(parsed_.symbols.find(special), std::move(value));
  };
  if (signature.uses_caller && !caller_is_parameter) {
    std::optional<Value> caller = take_named(named, "caller");
    const bool has_caller = caller && !caller->is_none();
    set_special("caller", has_caller ? *std::move(caller) : Value::undefined_hint("No caller defined"));
  }
  if (signature.uses_kwargs) {
    set_special("kwargs", dict_of(named));
  } else if (!named.empty()) {
    fail_template("macro {} takes no keyword argument {}", in_quotes(name), in_quotes(named[0].first));
  }
  if (signature.uses_varargs) {
    const auto rest = arguments.positional.begin() + static_cast<ptrdiff_t>(given);
    set_special("varargs", Value::tuple(std::vector<Value>(rest, arguments.positional.end())));
  } else if (arguments.positional.size() > parameters.size()) {
    fail_template("macro {} takes not more than {} argument(s)", in_quotes(name), parameters.size());
  }

  Capture capture(*this);
  const size_t first_default = parameters.size() - signature.defaults.size();
  for (size_t i = first_default; i < parameters.size(); ++i) {
    if (missing[i]) scope_->set(parameters[i], evaluate(*signature.defaults[i - first_default]));
  }
  hide(body);
  execute(body.statements);
  return capture.take();
}

Interpreter::Flow Interpreter::execute_macro(const Macro& statement) {
  ScopePool::capture(scope_);
  const std::string& name = parsed_.symbols.name(statement.name);
  scope_->set(statement.name, Value::object(std::make_shared<MacroObject>(parsed_.symbols, statement.signature,
                                                                          statement.body, scope_, name)));
  return Flow::Normal;
}

Interpreter::Flow Interpreter::execute_call_block(const CallBlock& statement) {
  ScopePool::capture(scope_);
  const Value caller = Value::object(
      std::make_shared<MacroObject>(parsed_.symbols, statement.signature, statement.body, scope_, std::string()));
  write_text(evaluate_call(*statement.call, &caller));
  return Flow::Normal;
}

}  // namespace millrace::jinja
