#include "text/jinja/value/object.h"

#include <algorithm>

#include "text/jinja/template_error.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

class ItemIterator : public Iterator {
 public:
  // `owner` keeps `items` alive.
  ItemIterator(Value owner, const std::vector<Value>& items) : owner_(std::move(owner)), items_(items) {}
  std::optional<Value> next() override {
    if (at_ == items_.size()) return std::nullopt;
    Budget::spend();
    return items_[at_++];
  }

 private:
  const Value owner_;
  const std::vector<Value>& items_;
  size_t at_ = 0;
};

class OwnedIterator : public Iterator {
 public:
  explicit OwnedIterator(std::vector<Value> items) : items_(std::move(items)), claim_(items_.size() * sizeof(Value)) {}
  std::optional<Value> next() override {
    if (at_ == items_.size()) return std::nullopt;
    Budget::spend();
    return std::move(items_[at_++]);
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
  const MemoryClaim claim_;
};

class CharacterIterator : public Iterator {
 public:
  explicit CharacterIterator(Value text) : text_(std::move(text)) {}
  std::optional<Value> next() override {
    const std::string& bytes = text_.str();
    if (at_ == bytes.size()) return std::nullopt;
    Budget::spend();
    const size_t start = at_;
    next_code_point(bytes, at_);
    return piece_of(text_, std::string_view(bytes).substr(start, at_ - start));
  }

 private:
  const Value text_;
  size_t at_ = 0;
};

class KeyIterator : public Iterator {
 public:
  explicit KeyIterator(Value dict) : dict_(std::move(dict)) {}
  std::optional<Value> next() override {
    const auto& entries = dict_.as_dict().entries();
    if (at_ == entries.size()) return std::nullopt;
    Budget::spend();
    return entries[at_++].first;
  }

 private:
  const Value dict_;
  size_t at_ = 0;
};

class GeneratorIterator : public Iterator {
 public:
  explicit GeneratorIterator(std::shared_ptr<Generator> generator) : generator_(std::move(generator)) {}
  std::optional<Value> next() override { return generator_->next(); }

 private:
  const std::shared_ptr<Generator> generator_;
};

}  // namespace

std::string Object::repr() const { return "<" + std::string(type_name()) + " object>"; }

bool Object::truthy() const {
  const std::optional<size_t> size = length();
  return !size || *size != 0;
}

Value Object::call(Interpreter&, const Arguments&) { fail_template("'{}' object is not callable", type_name()); }

std::optional<Value> Object::slice(const Value&, const Value&, const Value&) { return std::nullopt; }

Generator::Generator(std::string_view name, int depth, std::function<Next()> start)
    : name_(name), depth_(checked_depth(depth)), start_(std::move(start)) {}

IteratorPtr Generator::iterate() {
  return std::make_unique<GeneratorIterator>(std::static_pointer_cast<Generator>(shared_from_this()));
}

std::optional<Value> Generator::next() {
  if (running_) fail_template("a lazy sequence reads from itself");
  running_ = true;
  struct Reset {
    bool& flag;
    ~Reset() { flag = false; }
  } reset{running_};
  const DepthGuard depth;
  Budget::spend();
  if (start_) {
    next_ = start_();
    start_ = nullptr;
  }
  std::optional<Value> item = next_ ? next_() : std::nullopt;
  if (!item) next_ = nullptr;
  return item;
}

Value make_generator(std::string_view name, int depth, std::function<Generator::Next()> start) {
  return Value::object(std::make_shared<Generator>(name, depth, std::move(start)));
}

Value make_function(std::string_view name, int depth, Function::Body body) {
  return Value::object(std::make_shared<Function>(name, depth, std::move(body)));
}

bool truthy(const Value& value) {
  if (value.is_boolean()) return value.as_boolean();
  if (value.is_integer()) return value.as_integer() != 0;
  if (value.is_real()) return value.as_real() != 0;
  if (value.is_none()) return false;
  if (value.is_object()) return value.as_object()->truthy();
  return *length_of(value) != 0;
}

std::optional<size_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return value.text().length;
  if (value.is_sequence()) return value.items().size();
  if (value.is_dict()) return value.as_dict().size();
  if (value.is_object()) return value.as_object()->length();
  return std::nullopt;
}

bool is_iterable(const Value& value) {
  if (value.is_object()) return value.as_object()->iterate() != nullptr;
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict();
}

IteratorPtr iterate(const Value& value) {
  if (value.is_sequence()) return std::make_unique<ItemIterator>(value, value.items());
  if (value.is_dict()) return std::make_unique<KeyIterator>(value);
  if (value.is_string()) return std::make_unique<CharacterIterator>(value);
  if (value.is_undefined()) return iterate_items({});
  if (value.is_object()) {
    if (IteratorPtr iterator = value.as_object()->iterate()) return iterator;
  }
  fail_template("'{}' object is not iterable", value.type_name());
}

IteratorPtr iterate_reversed(const Value& value) {
  if (value.is_object() && !value.as_object()->length()) return nullptr;
  if (!length_of(value)) return nullptr;
  std::vector<Value> items = to_vector(value);
  std::reverse(items.begin(), items.end());
  return iterate_items(std::move(items));
}

std::vector<Value> to_vector(const Value& value) {
  if (value.is_sequence()) {
    Budget::spend(static_cast<int64_t>(value.items().size() / 16));
    return value.items();
  }
  std::vector<Value> items;
  const IteratorPtr iterator = iterate(value);
  MemoryClaim claim;
  while (std::optional<Value> item = iterator->next()) {
    claim.grow(sizeof(Value));
    items.push_back(*std::move(item));
  }
  return items;
}

IteratorPtr iterate_items(std::vector<Value> items) { return std::make_unique<OwnedIterator>(std::move(items)); }

void require_defined(const Value& value) {
  if (value.is_undefined()) throw TemplateError(value.undefined_info().message());
}

}  // namespace millrace::jinja
