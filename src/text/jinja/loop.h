// The `loop` variable: the position of a for loop, and the call of a recursive loop.
#pragma once

#include "text/jinja/parse/ast.h"
#include "text/jinja/scope.h"
#include "text/jinja/value/object.h"

namespace millrace::jinja {

class LoopObject : public Object {
 public:
  // `length` is empty for iterables without a length.
  LoopObject(const For& loop, Scope* closure, IteratorPtr items, std::optional<size_t> length, int depth0)
      : loop_(loop), closure_(closure), items_(std::move(items)), length_(length), depth0_(depth0) {}

  // Steps to the next item.
  std::optional<Value> advance();
  // Ends the iteration. Requests no further item, not even for loop.nextitem.
  void stop() { items_.reset(); }
  // Returns and clears all held values.
  std::vector<Value> release();

  std::string_view type_name() const override { return "LoopContext"; }
  std::string repr() const override;
  std::optional<size_t> length() const override { return const_cast<LoopObject*>(this)->measure(); }
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override;

 private:
  size_t measure();
  const std::optional<Value>& peek();
  Value cycle(const Arguments& arguments) const;
  Value changed(const Arguments& arguments);

  const For& loop_;
  Scope* const closure_;
  IteratorPtr items_;
  std::optional<size_t> length_;
  const int depth0_;
  int64_t index0_ = -1;
  std::optional<Value> before_, current_, after_;
  std::optional<Value> last_changed_;
  const MemoryClaim claim_{sizeof(LoopObject)};
};

}  // namespace millrace::jinja
