#include "text/jinja/value/value.h"

#include <algorithm>

#include "text/jinja/template_error.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return checked_depth(depth + 1);
}

}  // namespace

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) fail_template("values nested in values go deeper than {} levels", kMaxValueDepth);
  return depth;
}

std::string in_quotes(std::string_view name) { return repr_text(name); }

std::string UndefinedInfo::message() const {
  switch (reason) {
    case Reason::Name:
      return in_quotes(name) + " is undefined";
    case Reason::Attribute:
      return fmt::format("'{}' has no attribute {}", owner, in_quotes(name));
    case Reason::Element:
      return fmt::format("{} has no element {}", owner, name);
    case Reason::Unsafe:
      return fmt::format("access to attribute {} of '{}' object is unsafe.", in_quotes(name), owner);
    case Reason::Hint:
      break;
  }
  return name;
}

Text::Text(std::string text, bool is_markup, std::optional<ContentRanges> from_conversation)
    : bytes(std::move(text)),
      length(count_code_points(bytes)),
      markup(is_markup),
      content(std::move(from_conversation)),
      claim(sizeof(Text) + bytes.size() + (content ? content->size() * sizeof((*content)[0]) : 0)) {
  Budget::check_text(bytes.size());
}

Sequence::Sequence(std::vector<Value> values, Type sequence_type)
    : items(std::move(values)),
      type(sequence_type),
      depth(depth_of(items)),
      content(std::any_of(items.begin(), items.end(), [](const Value& item) { return item.has_content(); })),
      claim(sizeof(Sequence) + items.size() * sizeof(Value)) {}

Value Value::undefined(UndefinedInfo info) {
  return Value(Data(std::make_shared<const UndefinedInfo>(std::move(info))));
}

Value Value::undefined_hint(std::string hint) {
  return undefined({.reason = UndefinedInfo::Reason::Hint, .name = std::move(hint), .owner = {}});
}

Value Value::string(std::string text, bool markup) {
  return Value(Data(std::make_shared<const Text>(std::move(text), markup, std::nullopt)));
}

Value Value::text(std::string text, ContentRanges content, bool markup) {
  return Value(Data(std::make_shared<const Text>(std::move(text), markup, std::move(content))));
}

Value Value::list(std::vector<Value> items) {
  return Value(Data(std::make_shared<const Sequence>(std::move(items), Sequence::Type::List)));
}

Value Value::tuple(std::vector<Value> items) {
  return Value(Data(std::make_shared<const Sequence>(std::move(items), Sequence::Type::Tuple)));
}

double Value::as_real() const { return is_real() ? std::get<double>(data_) : static_cast<double>(as_integer()); }

bool Value::is_same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_none() || is_boolean()) return data_ == other.data_;
  // CPython shares one object per small integer and per string of at most one character.
  if (is_integer()) return as_integer() == other.as_integer() && as_integer() >= -5 && as_integer() <= 256;
  if (is_string()) {
    return &text() == &other.text() || (str() == other.str() && text().length <= 1 && !is_markup());
  }
  if (is_real()) return false;
  return data_ == other.data_;
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  if (is_dict()) return as_dict().depth();
  if (is_object()) return as_object()->depth();
  return 0;
}

bool Value::has_content() const {
  if (is_string()) return text().content && !text().content->empty();
  if (is_sequence()) return sequence().content;
  if (is_dict()) return as_dict().content();
  return is_object();
}

std::string_view Value::type_name() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "Undefined";
  if (is_boolean()) return "bool";
  if (is_integer()) return "int";
  if (is_real()) return "float";
  if (is_string()) return is_markup() ? "Markup" : "str";
  if (is_list()) return "list";
  if (is_tuple()) return "tuple";
  if (is_dict()) return "dict";
  return as_object()->type_name();
}

template <class Matches>
const Dict::Entry* Dict::lookup(size_t hash, Matches matches) const {
  if (index_.empty()) {
    for (const Entry& entry : entries_) {
      if (matches(entry.first)) return &entry;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    if (matches(entries_[at->second].first)) return &entries_[at->second];
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const Entry* entry = lookup(index_.empty() ? 0 : hash_of(key),
                              [&](const Value& other) { return other.is_string() && other.str() == key; });
  return entry ? &entry->second : nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.str());
  const Entry* entry =
      lookup(hash_of(key), [&](const Value& other) { return key.is_same(other) || equals(key, other); });
  return entry ? &entry->second : nullptr;
}

void Dict::set(Value key, Value value) {
  constexpr size_t kScanned = 8;
  depth_ = std::max(depth_, checked_depth(std::max(key.depth(), value.depth()) + 1));
  content_ = content_ || key.has_content() || value.has_content();
  if (const Value* present = find(key)) {
    const_cast<Value&>(*present) = std::move(value);
    return;
  }
  claim_.grow(sizeof(Entry) + 6 * sizeof(void*));
  entries_.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(hash_of(entries_.back().first), entries_.size() - 1);
  } else if (entries_.size() > kScanned) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash_of(entries_[i].first), i);
  }
}

}  // namespace millrace::jinja
