// The base of functions, loops, namespaces and lazy sequences, and the generic operations on values: iteration, length,
// truthiness.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

class Interpreter;
struct Arguments;

class Iterator {
 public:
  virtual ~Iterator() = default;
  virtual std::optional<Value> next() = 0;
};
using IteratorPtr = std::unique_ptr<Iterator>;

class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::string repr() const;
  virtual bool truthy() const;
  virtual int depth() const { return 1; }
  virtual std::optional<size_t> length() const { return std::nullopt; }
  virtual IteratorPtr iterate() { return nullptr; }  // null: not iterable
  virtual std::optional<Value> attribute(std::string_view) { return std::nullopt; }
  virtual std::optional<Value> item(const Value&) { return std::nullopt; }
  virtual std::optional<Value> slice(const Value& start, const Value& stop, const Value& step);
  virtual std::optional<bool> contains(const Value&) const { return std::nullopt; }  // empty: search by iteration
  virtual bool hashable() const { return true; }
  virtual bool equals(const Object&) const { return false; }  // for objects that are not identical
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter&, const Arguments&);
};

// Python's generator: computes each item on demand, once.
class Generator : public Object {
 public:
  using Next = std::function<std::optional<Value>()>;
  // `start` runs on the first request. `depth` is one more than the depth of any held value.
  Generator(std::string_view name, int depth, std::function<Next()> start);
  std::string_view type_name() const override { return "generator"; }
  std::string repr() const override { return "<generator object " + name_ + ">"; }
  int depth() const override { return depth_; }
  IteratorPtr iterate() override;
  std::optional<Value> next();

 private:
  const std::string name_;
  const int depth_;
  std::function<Next()> start_;
  Next next_;
  bool running_ = false;
};

// A built-in function: global or bound to a value.
class Function : public Object {
 public:
  using Body = std::function<Value(Interpreter&, const Arguments&)>;
  Function(std::string_view name, int depth, Body body)
      : name_(name), depth_(checked_depth(depth)), body_(std::move(body)) {}
  std::string_view type_name() const override { return "function"; }
  std::string repr() const override { return "<function " + name_ + ">"; }
  int depth() const override { return depth_; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override { return body_(interpreter, arguments); }

 private:
  const std::string name_;
  const int depth_;
  const Body body_;
};

Value make_generator(std::string_view name, int depth, std::function<Generator::Next()> start);
Value make_function(std::string_view name, int depth, Function::Body body);

bool truthy(const Value& value);
std::optional<size_t> length_of(const Value& value);  // empty if Python's len() fails
bool is_iterable(const Value& value);
IteratorPtr iterate(const Value& value);
// From the last to the first item; null if Python's reversed() fails.
IteratorPtr iterate_reversed(const Value& value);
std::vector<Value> to_vector(const Value& value);

// Iterates over given items.
IteratorPtr iterate_items(std::vector<Value> items);

// Fails for an undefined value, with the reason.
void require_defined(const Value& value);

}  // namespace millrace::jinja
