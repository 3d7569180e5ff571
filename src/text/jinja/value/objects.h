// Objects that templates create: range(), dict views, namespace(), joiner().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value/object.h"

namespace millrace::jinja {

class Range : public Object {
 public:
  Range(Integer start, Integer stop, Integer step);
  std::string_view type_name() const override { return "range"; }
  std::string repr() const override;
  std::optional<size_t> length() const override { return count_; }
  IteratorPtr iterate() override;
  std::optional<Value> attribute(std::string_view name) override;
  std::optional<Value> item(const Value& key) override;
  std::optional<Value> slice(const Value& start, const Value& stop, const Value& step) override;
  bool equals(const Object& other) const override;
  Integer at(size_t i) const { return start_ + static_cast<Integer>(i) * step_; }

 private:
  const Integer start_, stop_, step_;
  size_t count_ = 0;
};

// dict.keys(), dict.values() and dict.items(): views with a length and without an index.
class DictView : public Object {
 public:
  enum class Part { Keys, Values, Items };
  DictView(Value dict, Part part) : dict_(std::move(dict)), part_(part) {}
  std::string_view type_name() const override;
  std::string repr() const override;
  int depth() const override { return dict_.depth() + 1; }
  std::optional<size_t> length() const override { return dict_.as_dict().size(); }
  IteratorPtr iterate() override;
  std::optional<bool> contains(const Value& item) const override;
  bool hashable() const override { return part_ == Part::Values; }

 private:
  std::vector<Value> items() const;
  const Value dict_;
  const Part part_;
};

// The only object whose attributes a template can set, also from inside of a loop.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::string repr() const override;
  std::optional<Value> attribute(std::string_view name) override;
  void set(std::string_view name, Value value);
  std::vector<std::pair<std::string, Value>> release() { return std::move(attributes_); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
  MemoryClaim claim_;
  mutable bool printing_ = false;
};

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)), depth_(checked_depth(separator_.depth() + 1)) {}
  std::string_view type_name() const override { return "Joiner"; }
  int depth() const override { return depth_; }
  bool callable() const override { return true; }
  Value call(Interpreter&, const Arguments& arguments) override;

 private:
  const Value separator_;
  const int depth_;
  bool used_ = false;
};

}  // namespace millrace::jinja
