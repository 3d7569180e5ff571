#include "text/jinja/value/compare.h"

#include <cmath>
#include <functional>

#include "text/jinja/template_error.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/text_builder.h"

namespace millrace::jinja {
namespace {

// Returns -1, 0 or 1, or 2 for NaN. Exact even if the integer has more digits than a double.
int compare_numbers(const Value& a, const Value& b) {
  if (!a.is_real() && !b.is_real()) {
    const Integer x = a.as_integer(), y = b.as_integer();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.is_real() && b.is_real()) {
    const double x = a.as_real(), y = b.as_real();
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
  }
  if (b.is_real()) {
    const int reversed = compare_numbers(b, a);
    return reversed == 2 ? 2 : -reversed;
  }
  constexpr double kIntegerRange = 0x1p126;
  const double x = a.as_real();
  if (std::isnan(x)) return 2;
  if (std::fabs(x) >= kIntegerRange) return x < 0 ? -1 : 1;
  const auto whole = static_cast<Integer>(std::floor(x));
  const Integer y = b.as_integer();
  if (whole != y) return whole < y ? -1 : 1;
  return x > std::floor(x) ? 1 : 0;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (!other || !(value.is_same(*other) || equals(value, *other))) return false;
  }
  return true;
}

bool equal_sequences(const Value& a, const Value& b) {
  if (a.is_list() != b.is_list() || a.items().size() != b.items().size()) return false;
  for (size_t i = 0; i < a.items().size(); ++i) {
    if (!(a.items()[i].is_same(b.items()[i]) || equals(a.items()[i], b.items()[i]))) return false;
  }
  return true;
}

[[noreturn]] void fail_order(std::string_view symbol, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  fail_template("'{}' not supported between instances of '{}' and '{}'", symbol, a.type_name(), b.type_name());
}

// Python's order: -1, 0 or 1, or 2 for unordered values (NaN). UTF-8 bytes sort like code points.
int order(const Value& a, const Value& b, std::string_view symbol) {
  Budget::spend();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    const int result = a.str().compare(b.str());
    return result < 0 ? -1 : result > 0 ? 1 : 0;
  }
  if (a.is_sequence() && b.is_sequence() && a.is_list() == b.is_list()) {
    const auto &x = a.items(), &y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!(x[i].is_same(y[i]) || equals(x[i], y[i]))) return order(x[i], y[i], symbol);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  fail_order(symbol, a, b);
}

}  // namespace

bool equals(const Value& a, const Value& b) {
  Budget::spend();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.is_string() && b.is_string()) return a.str() == b.str();
  if (a.is_sequence() && b.is_sequence()) return equal_sequences(a, b);
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.as_dict(), b.as_dict());
  if (a.is_undefined() && b.is_undefined()) return true;
  if (a.is_object() && b.is_object()) return a.is_same(b) || a.as_object()->equals(*b.as_object());
  return a.is_none() && b.is_none();
}

bool less(const Value& a, const Value& b) { return order(a, b, "<") == -1; }

bool less_or_equal(const Value& a, const Value& b) {
  const int result = order(a, b, "<=");
  return result == -1 || result == 0;
}

bool contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail_template("'in <string>' requires string as left operand, not {}", item.type_name());
    }
    return find_text(container.str(), item.str()) != std::string_view::npos;
  }
  if (container.is_dict()) return container.as_dict().find(item) != nullptr;
  if (container.is_object()) {
    if (const std::optional<bool> known = container.as_object()->contains(item)) return *known;
  }
  if (!is_iterable(container)) fail_template("argument of type '{}' is not iterable", container.type_name());
  const IteratorPtr iterator = iterate(container);
  while (const std::optional<Value> candidate = iterator->next()) {
    if (candidate->is_same(item) || equals(*candidate, item)) return true;
  }
  return false;
}

size_t hash_of(std::string_view text) { return std::hash<std::string_view>()(text); }

size_t hash_of(const Value& value) {
  Budget::spend();
  if (value.is_string()) return hash_of(std::string_view(value.str()));
  // 1, 1.0 and true are the same key. A double separates integers well enough for a hash.
  if (value.is_number()) return std::hash<double>()(value.as_real());
  if (value.is_tuple()) {
    size_t hash = 0x9e3779b97f4a7c15u;
    for (const Value& item : value.items()) hash = hash * 31 + hash_of(item);
    return hash;
  }
  const bool hashable = !value.is_list() && !value.is_dict() && !(value.is_object() && !value.as_object()->hashable());
  if (!hashable) fail_template("unhashable type: '{}'", value.type_name());
  if (value.is_object()) return std::hash<const void*>()(value.as_object().get());
  return value.is_none() ? 1 : 2;
}

}  // namespace millrace::jinja
