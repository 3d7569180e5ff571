#include "text/jinja/value/objects.h"

#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/builtin/methods.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/text_builder.h"

namespace millrace::jinja {
namespace {

class RangeIterator : public Iterator {
 public:
  explicit RangeIterator(std::shared_ptr<const Range> range) : range_(std::move(range)) {}
  std::optional<Value> next() override {
    if (at_ == *range_->length()) return std::nullopt;
    Budget::spend();
    return Value::integer(range_->at(at_++));
  }

 private:
  const std::shared_ptr<const Range> range_;
  size_t at_ = 0;
};

}  // namespace

Range::Range(Integer start, Integer stop, Integer step) : start_(start), stop_(stop), step_(step) {
  constexpr Integer kLargest = Integer(1) << 100;
  if (step == 0) fail_template("range() arg 3 must not be zero");
  for (const Integer bound : {start, stop, step}) {
    if (bound > kLargest || bound < -kLargest) fail_template("range() with numbers this large is not supported");
  }
  const Integer span = step > 0 ? stop - start : start - stop;
  const Integer stride = step > 0 ? step : -step;
  const Integer count = span > 0 ? (span - 1) / stride + 1 : 0;
  constexpr Integer kMaxRange = 100000;  // MAX_RANGE of Jinja's sandbox
  if (count > kMaxRange) fail_template("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  count_ = static_cast<size_t>(count);
}

std::string Range::repr() const {
  std::string text = "range(" + integer_text(start_) + ", " + integer_text(stop_);
  if (step_ != 1) text += ", " + integer_text(step_);
  return text + ")";
}

IteratorPtr Range::iterate() {
  return std::make_unique<RangeIterator>(std::static_pointer_cast<const Range>(shared_from_this()));
}

std::optional<Value> Range::attribute(std::string_view name) {
  if (name == "start") return Value::integer(start_);
  if (name == "stop") return Value::integer(stop_);
  if (name == "step") return Value::integer(step_);
  if (name != "count" && name != "index") return std::nullopt;
  // A range is short enough for a copy into a tuple.
  std::vector<Value> numbers;
  for (size_t i = 0; i < count_; ++i) numbers.push_back(Value::integer(at(i)));
  return find_bound_method(Value::tuple(std::move(numbers)), name);
}

std::optional<Value> Range::item(const Value& key) {
  if (!key.is_int_like()) return std::nullopt;
  Integer index = key.as_integer();
  if (index < 0) index += static_cast<Integer>(count_);
  if (index < 0 || index >= static_cast<Integer>(count_)) return std::nullopt;
  return Value::integer(at(static_cast<size_t>(index)));
}

std::optional<Value> Range::slice(const Value& start, const Value& stop, const Value& step) {
  const SliceRange part = resolve_slice(count_, start, stop, step);
  const auto number = [&](int64_t i) { return start_ + Integer(i) * step_; };
  return Value::object(std::make_shared<Range>(number(part.start), number(part.stop), step_ * part.step));
}

bool Range::equals(const Object& other) const {
  const auto* range = dynamic_cast<const Range*>(&other);
  if (!range || range->count_ != count_) return false;
  return count_ == 0 || (start_ == range->start_ && (count_ == 1 || step_ == range->step_));
}

std::string_view DictView::type_name() const {
  return part_ == Part::Keys ? "dict_keys" : part_ == Part::Values ? "dict_values" : "dict_items";
}

std::string DictView::repr() const { return std::string(type_name()) + "(" + jinja::repr(Value::list(items())) + ")"; }

std::vector<Value> DictView::items() const {
  std::vector<Value> items;
  items.reserve(dict_.as_dict().size());
  for (const auto& [key, value] : dict_.as_dict().entries()) {
    items.push_back(part_ == Part::Keys ? key : part_ == Part::Values ? value : Value::tuple({key, value}));
  }
  return items;
}

IteratorPtr DictView::iterate() { return iterate_items(items()); }

std::optional<bool> DictView::contains(const Value& item) const {
  if (part_ != Part::Keys) return std::nullopt;
  return dict_.as_dict().find(item) != nullptr;
}

std::string Namespace::repr() const {
  if (printing_) return "<Namespace {...}>";
  printing_ = true;
  struct Reset {
    bool& flag;
    ~Reset() { flag = false; }
  } reset{printing_};
  const DepthGuard depth;
  TextBuilder out;
  out.append("<Namespace {");
  for (size_t i = 0; i < attributes_.size(); ++i) {
    if (i > 0) out.append(", ");
    out.append(repr_text(attributes_[i].first)).append(": ").append(jinja::repr(attributes_[i].second));
  }
  return out.append("}>").take();
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  for (const auto& [known, value] : attributes_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void Namespace::set(std::string_view name, Value value) {
  if (name.starts_with('_')) {
    fail_template("Chat templates cannot store underscore-prefixed attributes on a namespace, but got {}.",
                  in_quotes(name));
  }
  Budget::spend(static_cast<int64_t>(attributes_.size() / 8));
  for (auto& [known, old] : attributes_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  claim_.grow(sizeof(attributes_[0]) + name.size());
  attributes_.emplace_back(name, std::move(value));
}

Value Joiner::call(Interpreter&, const Arguments& arguments) {
  const BoundArguments none(arguments, "joiner", {});
  if (used_) return separator_;
  used_ = true;
  return Value::string("");
}

}  // namespace millrace::jinja
