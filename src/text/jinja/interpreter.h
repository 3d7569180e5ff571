// Renders a parsed template with a context. One object per render.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/parse/ast.h"
#include "text/jinja/scope.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/text_builder.h"

namespace millrace::jinja {

class LoopObject;

class Interpreter {
 public:
  // strftime_now() formats `now`.
  Interpreter(const Template& parsed, const Dict& context, std::chrono::system_clock::time_point now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  Value run();  // a string
  int line() const { return line_; }
  std::chrono::system_clock::time_point now() const { return now_; }

  Value call(const Value& callee, const Arguments& arguments);
  Value apply_filter(std::string_view name, const Value& subject, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& subject, const Arguments& arguments);

  // Mutable objects may form reference cycles. The destructor empties the objects kept here.
  void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

  Value call_macro(const Signature& signature, const ScopedBody& body, Scope* closure, std::string_view name,
                   const Arguments& arguments);
  // Runs a recursive loop over the items of the next level.
  Value render_loop(const For& loop, const Value& iterable, Scope* closure, int depth);
  // True if the item satisfies the `if` of the loop.
  bool passes_filter(const For& loop, Scope* closure, const Value& item);

 private:
  enum class Flow { Normal, Break, Continue };
  class ScopeEntry;
  class Capture;
  class RunningLoop;

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_output(const Output& statement);
  Flow execute_if(const If& statement);
  Flow execute_for(const For& statement);
  Flow execute_set(const Set& statement);
  Flow execute_set_block(const SetBlock& statement);
  Flow execute_macro(const Macro& statement);
  Flow execute_call_block(const CallBlock& statement);
  Flow execute_filter_block(const FilterBlock& statement);
  Flow execute_with(const With& statement);
  Flow execute_block(const Block& statement);
  void write_text(const Value& value);
  Flow execute_scoped(const ScopedBody& body, Scope* parent);
  Flow run_loop(const For& loop, const Value& iterable, Scope* closure, int depth);
  Flow run_iteration(const For& loop, Scope* closure, const std::shared_ptr<LoopObject>& object, const Value& item);

  Value evaluate(const Expression& expression);
  Value evaluate_collection(const Collection& expression);
  Value evaluate_concat(const Collection& expression);
  Value evaluate_dict(const DictLiteral& expression);
  Value evaluate_unary(const Unary& expression);
  Value evaluate_binary(const Binary& expression);
  Value evaluate_logic(const Binary& expression);
  Value evaluate_compare(const Compare& expression);
  Value evaluate_conditional(const Conditional& expression);
  Value evaluate_attribute(const Attribute& expression);
  Value evaluate_item(const Item& expression);
  Value evaluate_slice(const Slice& expression);
  Value evaluate_call(const Call& expression, const Value* caller = nullptr);
  Value evaluate_applied(const Applied& expression);
  Arguments evaluate_arguments(const CallArguments& arguments);

  Value lookup(SymbolId id) const;
  void hide(const ScopedBody& body);
  void assign(const Expression& target, const Value& value);
  void assign_tuple(const Collection& target, const Value& value);
  void check_namespaces(const Expression& target) const;

  const Template& parsed_;
  const std::chrono::system_clock::time_point now_;
  std::vector<std::optional<Value>> globals_;  // by symbol: the context's variables and Jinja's functions
  ScopePool scopes_;
  Scope* const root_;
  Scope* scope_;
  TextBuilder* out_ = nullptr;
  Value block_text_;  // subject of the filters of a filter block or set block
  int line_ = 1;
  std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace millrace::jinja
