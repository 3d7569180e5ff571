#include "text/jinja/access.h"

#include <algorithm>
#include <limits>

#include "text/jinja/builtin/methods.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/content.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/text_builder.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

using Reason = UndefinedInfo::Reason;

std::string owner_name(const Value& value) {
  return value.is_none() ? "None" : std::string(value.type_name()) + " object";
}

Value missing_attribute(const Value& value, std::string_view name) {
  return Value::undefined({.reason = Reason::Attribute, .name = std::string(name), .owner = owner_name(value)});
}

Value missing_item(const Value& value, const Value& key) {
  if (key.is_string()) return missing_attribute(value, key.str());
  return Value::undefined({.reason = Reason::Element, .name = repr(key), .owner = owner_name(value)});
}

Value unsafe_attribute(const Value& value, std::string_view name) {
  return Value::undefined(
      {.reason = Reason::Unsafe, .name = std::string(name), .owner = std::string(value.type_name())});
}

// Python's internal attributes (__class__, ...) and the methods that modify a value.
bool is_unsafe(const Value& value, std::string_view name) {
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) return true;
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (value.is_dict()) return is_one_of({"clear", "pop", "popitem", "setdefault", "update"});
  if (value.is_list()) {
    return is_one_of({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  }
  return false;
}

std::optional<size_t> resolve_index(const Value& key, size_t length) {
  if (!key.is_int_like()) return std::nullopt;
  Integer index = key.as_integer();
  if (index < 0) index += static_cast<Integer>(length);
  if (index < 0 || index >= static_cast<Integer>(length)) return std::nullopt;
  return static_cast<size_t>(index);
}

Value character_at(const Value& value, size_t index) {
  const Text& text = value.text();
  if (text.ascii()) return piece_of(value, std::string_view(text.bytes).substr(index, 1));
  Budget::spend(static_cast<int64_t>(text.bytes.size() / 64));
  const size_t start = code_point_offset(text.bytes, index);
  size_t end = start;
  next_code_point(text.bytes, end);
  return piece_of(value, std::string_view(text.bytes).substr(start, end - start));
}

// value[key] without a fallback.
std::optional<Value> find_item(const Value& value, const Value& key) {
  if (value.is_dict()) {
    if (key.is_list() || key.is_dict()) return std::nullopt;
    const Value* found = value.as_dict().find(key);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (value.is_sequence()) {
    const std::optional<size_t> index = resolve_index(key, value.items().size());
    return index ? std::optional(value.items()[*index]) : std::nullopt;
  }
  if (value.is_string()) {
    const std::optional<size_t> index = resolve_index(key, value.text().length);
    return index ? std::optional(character_at(value, *index)) : std::nullopt;
  }
  if (value.is_object()) return value.as_object()->item(key);
  return std::nullopt;
}

int64_t slice_part(const Value& part, int64_t otherwise) {
  if (part.is_none()) return otherwise;
  if (!part.is_int_like()) fail_template("slice indices must be integers or None, not '{}'", part.type_name());
  constexpr Integer kLimit = Integer(1) << 60;
  return static_cast<int64_t>(std::clamp(part.as_integer(), -kLimit, kLimit));
}

Value slice_text(const Value& whole, const SliceRange& range) {
  const Text& text = whole.text();
  Budget::spend(static_cast<int64_t>(text.bytes.size() / 64));
  const size_t count = range.count();
  if (count == 0) return Value::text("", {}, text.markup);
  if (range.step == 1) {
    const size_t start = text.ascii() ? static_cast<size_t>(range.start)
                                      : code_point_offset(text.bytes, static_cast<size_t>(range.start));
    const std::string_view rest = std::string_view(text.bytes).substr(start);
    const size_t size = text.ascii() ? count : code_point_offset(rest, count);
    return piece_of(whole, rest.substr(0, size));
  }
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.bytes.size(); next_code_point(text.bytes, at)) starts.push_back(at);
  starts.push_back(text.bytes.size());
  TextBuilder out;
  for (size_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step);
    out.append_piece(whole, std::string_view(text.bytes).substr(starts[at], starts[at + 1] - starts[at]));
  }
  return out.take_value(text.markup);
}

}  // namespace

std::optional<Value> find_attribute(const Value& value, std::string_view name) {
  require_defined(value);
  if (is_unsafe(value, name)) return unsafe_attribute(value, name);
  if (value.is_object()) return value.as_object()->attribute(name);
  return find_bound_method(value, name);
}

Value get_attribute(const Value& value, std::string_view name) {
  if (std::optional<Value> attribute = find_attribute(value, name)) return *std::move(attribute);
  if (value.is_dict()) {
    if (const Value* item = value.as_dict().find(name)) return *item;
  } else if (value.is_object()) {
    if (std::optional<Value> item = value.as_object()->item(Value::string(std::string(name)))) return *std::move(item);
  }
  return missing_attribute(value, name);
}

Value get_item(const Value& value, const Value& key) {
  require_defined(value);
  if (std::optional<Value> item = find_item(value, key)) return *std::move(item);
  if (key.is_string()) {
    if (std::optional<Value> attribute = find_attribute(value, key.str())) return *std::move(attribute);
  }
  return missing_item(value, key);
}

size_t SliceRange::count() const {
  if (step > 0) return stop > start ? static_cast<size_t>((stop - start - 1) / step + 1) : 0;
  return start > stop ? static_cast<size_t>((start - stop - 1) / -step + 1) : 0;
}

SliceRange resolve_slice(size_t length, const Value& start, const Value& stop, const Value& step) {
  const auto size = static_cast<int64_t>(length);
  const int64_t stride = slice_part(step, 1);
  if (stride == 0) fail_template("slice step cannot be zero");
  const int64_t lowest = stride > 0 ? 0 : -1, highest = stride > 0 ? size : size - 1;
  const auto bound = [&](const Value& part, int64_t otherwise) {
    if (part.is_none()) return otherwise;
    const int64_t at = slice_part(part, 0);
    return std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  return {bound(start, stride > 0 ? 0 : size - 1), bound(stop, stride > 0 ? size : -1), stride};
}

Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  if (value.is_string()) return slice_text(value, resolve_slice(value.text().length, start, stop, step));
  if (value.is_sequence()) {
    const SliceRange range = resolve_slice(value.items().size(), start, stop, step);
    std::vector<Value> items;
    items.reserve(range.count());
    Budget::spend(static_cast<int64_t>(range.count() / 16));
    for (size_t i = 0; i < range.count(); ++i) {
      items.push_back(value.items()[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)]);
    }
    return value.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (value.is_object()) {
    if (std::optional<Value> slice = value.as_object()->slice(start, stop, step)) return *std::move(slice);
  }
  fail_template("'{}' object is not subscriptable by a slice", value.type_name());
}

}  // namespace millrace::jinja
