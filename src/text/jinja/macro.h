// A macro or the body of a call block, as a callable value.
#pragma once

#include "text/jinja/parse/ast.h"
#include "text/jinja/scope.h"
#include "text/jinja/value/object.h"

namespace millrace::jinja {

class MacroObject : public Object {
 public:
  // `name` is empty for the body of a call block.
  MacroObject(const SymbolTable& symbols, const Signature& signature, const ScopedBody& body, Scope* closure,
              std::string name)
      : symbols_(symbols), signature_(signature), body_(body), closure_(closure), name_(std::move(name)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string repr() const override { return name_.empty() ? "<Macro anonymous>" : "<Macro " + in_quotes(name_) + ">"; }
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override;

 private:
  const SymbolTable& symbols_;
  const Signature& signature_;
  const ScopedBody& body_;
  Scope* const closure_;
  const std::string name_;
};

}  // namespace millrace::jinja
