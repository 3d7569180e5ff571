// RAII helpers shared by the files of the interpreter: scopes and captured output.
#pragma once

#include "text/jinja/interpreter.h"

namespace millrace::jinja {

// Enters a new scope and leaves it in the destructor.
class Interpreter::ScopeEntry {
 public:
  ScopeEntry(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), previous_(interpreter.scope_), scope_(interpreter.scopes_.acquire(parent)) {
    interpreter_.scope_ = scope_;
  }
  ~ScopeEntry() {
    interpreter_.scope_ = previous_;
    interpreter_.scopes_.release(scope_);
  }
  ScopeEntry(const ScopeEntry&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* const previous_;
  Scope* const scope_;
};

// Collects the output written during its lifetime.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter) : interpreter_(interpreter), previous_(interpreter.out_) {
    interpreter_.out_ = &text_;
  }
  ~Capture() { interpreter_.out_ = previous_; }
  Capture(const Capture&) = delete;
  Value take() { return text_.take_value(); }

 private:
  Interpreter& interpreter_;
  TextBuilder* const previous_;
  TextBuilder text_;
};

}  // namespace millrace::jinja
