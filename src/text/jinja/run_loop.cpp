#include "text/jinja/interpreter_parts.h"
#include "text/jinja/loop.h"

namespace millrace::jinja {
namespace {

// The items that satisfy the `if` of a loop, tested on demand.
class FilteredItems : public Iterator {
 public:
  FilteredItems(Interpreter& interpreter, const For& loop, Scope* closure, IteratorPtr items)
      : interpreter_(interpreter), loop_(loop), closure_(closure), items_(std::move(items)) {}
  std::optional<Value> next() override {
    while (std::optional<Value> item = items_->next()) {
      if (interpreter_.passes_filter(loop_, closure_, *item)) return item;
    }
    return std::nullopt;
  }

 private:
  Interpreter& interpreter_;
  const For& loop_;
  Scope* const closure_;
  const IteratorPtr items_;
};

}  // namespace

// Stops the loop on every exit. If the template still refers to the loop object, keeps it until the end of the render.
class Interpreter::RunningLoop {
 public:
  RunningLoop(Interpreter& interpreter, std::shared_ptr<LoopObject> object)
      : interpreter_(interpreter), object_(std::move(object)) {}
  ~RunningLoop() {
    if (!object_) return;
    object_->stop();
    if (object_.use_count() > 1) interpreter_.keep(object_);
  }
  RunningLoop(const RunningLoop&) = delete;
  const std::shared_ptr<LoopObject>& object() const { return object_; }

 private:
  Interpreter& interpreter_;
  const std::shared_ptr<LoopObject> object_;
};

bool Interpreter::passes_filter(const For& loop, Scope* closure, const Value& item) {
  const ScopeEntry scope(*this, closure);
  assign(*loop.target, item);
  return truthy(evaluate(*loop.filter));
}

Interpreter::Flow Interpreter::execute_for(const For& statement) {
  const Value iterable = evaluate(*statement.iterable);
  line_ = statement.line;
  if (!statement.recursive) return run_loop(statement, iterable, scope_, 0);
  ScopePool::capture(scope_);
  out_->append_value(render_loop(statement, iterable, scope_, 0));
  return Flow::Normal;
}

Value Interpreter::render_loop(const For& loop, const Value& iterable, Scope* closure, int depth) {
  const DepthGuard guard;
  Capture capture(*this);
  run_loop(loop, iterable, closure, depth);
  return capture.take();
}

Interpreter::Flow Interpreter::run_loop(const For& loop, const Value& iterable, Scope* closure, int depth) {
  IteratorPtr items = iterate(iterable);
  std::optional<size_t> length = length_of(iterable);
  if (loop.filter) {
    items = std::make_unique<FilteredItems>(*this, loop, closure, std::move(items));
    length.reset();
  }
  std::shared_ptr<LoopObject> object;
  if (loop.uses_loop) object = std::make_shared<LoopObject>(loop, closure, std::move(items), length, depth);
  const RunningLoop running(*this, std::move(object));

  // As in Jinja, the else runs unless an iteration reached the end of the body.
  bool completed = false;
  while (const std::optional<Value> item = loop.uses_loop ? running.object()->advance() : items->next()) {
    const Flow flow = run_iteration(loop, closure, running.object(), *item);
    if (flow == Flow::Break) break;
    completed |= flow == Flow::Normal;
  }
  if (completed || loop.otherwise.statements.empty()) return Flow::Normal;
  return execute_scoped(loop.otherwise, closure);
}

Interpreter::Flow Interpreter::run_iteration(const For& loop, Scope* closure, const std::shared_ptr<LoopObject>& object,
                                             const Value& item) {
  const ScopeEntry scope(*this, closure);
  if (object) scope_->set(parsed_.symbols.find("loop"), Value::object(object));
  assign(*loop.target, item);
  hide(loop.body);
  return execute(loop.body.statements);
}

}  // namespace millrace::jinja
