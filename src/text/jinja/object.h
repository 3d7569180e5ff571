// Values that do something: what functions, loops, namespaces and lazy sequences have in common, and how anything is
// iterated, measured and judged true or false.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

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
  virtual std::optional<bool> contains(const Value&) const { return std::nullopt; }  // where it need not be iterated
  virtual bool hashable() const { return true; }
  virtual bool equals(const Object&) const { return false; }  // beside identity
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter&, const Arguments&);
};

// Python's generators: each item is made when asked for, and only once.
class Generator : public Object {
 public:
  using Next = std::function<std::optional<Value>()>;
  // `start` runs when the first item is wanted. `depth` is one more than that of any value it holds.
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

// A function of ours, of the global namespace or bound to a value.
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
std::optional<size_t> length_of(const Value& value);  // nothing where Python's len() would fail
bool is_iterable(const Value& value);
IteratorPtr iterate(const Value& value);
// From the last to the first item, where Python's reversed() can do so; null elsewhere.
IteratorPtr iterate_reversed(const Value& value);
std::vector<Value> to_vector(const Value& value);

// Iterates over items that are there already.
IteratorPtr iterate_items(std::vector<Value> items);

// Fails with the reason why the value is undefined, if it is.
void require_defined(const Value& value);

}  // namespace millrace::jinja
