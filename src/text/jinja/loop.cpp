#include "text/jinja/loop.h"

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/compare.h"

namespace millrace::jinja {

std::optional<Value> LoopObject::advance() {
  std::optional<Value> item = peek();
  after_.reset();
  if (!item) return std::nullopt;
  ++index0_;
  before_ = std::move(current_);
  current_ = item;
  return item;
}

std::vector<Value> LoopObject::release() {
  std::vector<Value> held;
  for (std::optional<Value>* value : {&before_, &current_, &after_, &last_changed_}) {
    if (*value) held.push_back(**value);
    value->reset();
  }
  items_.reset();
  return held;
}

std::string LoopObject::repr() const {
  return fmt::format("<LoopContext {}/{}>", index0_ + 1, const_cast<LoopObject*>(this)->measure());
}

const std::optional<Value>& LoopObject::peek() {
  if (!after_ && items_) after_ = items_->next();
  return after_;
}

size_t LoopObject::measure() {
  if (!length_) {
    // The length of a lazy sequence requires reading it to the end.
    std::vector<Value> rest;
    while (items_) {
      std::optional<Value> item = items_->next();
      if (!item) break;
      rest.push_back(*std::move(item));
    }
    length_ = rest.size() + static_cast<size_t>(index0_ + 1) + (after_ ? 1 : 0);
    items_ = iterate_items(std::move(rest));
  }
  return *length_;
}

std::optional<Value> LoopObject::attribute(std::string_view name) {
  const auto number = [](int64_t value) { return Value::integer(value); };
  if (name == "index") return number(index0_ + 1);
  if (name == "index0") return number(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return number(static_cast<int64_t>(measure()));
  if (name == "revindex") return number(static_cast<int64_t>(measure()) - index0_);
  if (name == "revindex0") return number(static_cast<int64_t>(measure()) - index0_ - 1);
  if (name == "depth") return number(depth0_ + 1);
  if (name == "depth0") return number(depth0_);
  if (name == "previtem") {
    return index0_ > 0 && before_ ? *before_ : Value::undefined_hint("there is no previous item");
  }
  if (name == "nextitem") return peek() ? *peek() : Value::undefined_hint("there is no next item");
  if (name != "cycle" && name != "changed") return std::nullopt;
  const bool cycles = name == "cycle";
  const auto self = std::static_pointer_cast<LoopObject>(shared_from_this());
  return make_function(name, 1, [self, cycles](Interpreter&, const Arguments& arguments) {
    return cycles ? self->cycle(arguments) : self->changed(arguments);
  });
}

Value LoopObject::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty() || !arguments.named.empty()) fail_template("no items for cycling given");
  return arguments.positional[static_cast<size_t>(std::max<int64_t>(index0_, 0)) % arguments.positional.size()];
}

Value LoopObject::changed(const Arguments& arguments) {
  if (!arguments.named.empty()) fail_template("changed() takes no keyword arguments");
  Value now = Value::tuple(arguments.positional);
  if (last_changed_ && jinja::equals(*last_changed_, now)) return Value::boolean(false);
  last_changed_ = std::move(now);
  return Value::boolean(true);
}

Value LoopObject::call(Interpreter& interpreter, const Arguments& arguments) {
  const BoundArguments args(arguments, "loop", {"iterable"});
  if (!loop_.recursive) {
    fail_template("The loop must have the 'recursive' marker to be called recursively.");
  }
  return interpreter.render_loop(loop_, args[0], closure_, depth0_ + 1);
}

}  // namespace millrace::jinja
