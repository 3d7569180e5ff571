// Values of a template: Python's None, bool, int, float, str, list, tuple and dict, Jinja's Undefined, and objects
// (functions, loops, namespaces). All but a few objects are immutable, as in Hugging Face's sandbox.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/budget.h"

namespace millrace::jinja {

class Object;
class Value;

// Python's integers are unbounded. 128 bits hold every 64-bit number of a JSON file; overflow is an error.
__extension__ using Integer = __int128;

// The reason why a value is undefined. The message is built only on use of the value.
struct UndefinedInfo {
  enum class Reason { Name, Attribute, Element, Unsafe, Hint };
  Reason reason;
  std::string name;   // the missing variable, attribute or element, or the whole hint
  std::string owner;  // the type that lacks it
  std::string message() const;
};

// Byte ranges [begin, end) of a text that come from the conversation: sorted, disjoint, not empty (value/content.h).
using ContentRanges = std::vector<std::pair<size_t, size_t>>;

struct Text {
  Text(std::string text, bool is_markup, std::optional<ContentRanges> from_conversation);
  const std::string bytes;
  const size_t length;                         // in code points
  const bool markup;                           // marked safe: exempt from HTML escaping
  const std::optional<ContentRanges> content;  // nullopt: not known; the text has none if no input had
  const MemoryClaim claim;
  bool ascii() const { return length == bytes.size(); }
};

struct Sequence {
  enum class Type : uint8_t { List, Tuple };
  Sequence(std::vector<Value> values, Type sequence_type);
  const std::vector<Value> items;
  const Type type;
  const int depth;  // nesting depth, bounded because operations on values recurse
  const bool
      content;  // a text inside has content. Kept, because values may share parts and have exponentially many paths
  const MemoryClaim claim;
};

class Value {
 public:
  Value() = default;  // None
  static Value undefined(UndefinedInfo info);
  static Value undefined_hint(std::string hint);
  static Value boolean(bool b) { return Value(Data(b)); }
  static Value integer(Integer i) { return Value(Data(i)); }
  static Value real(double d) { return Value(Data(d)); }
  static Value string(std::string text, bool markup = false);
  static Value text(std::string text, ContentRanges content, bool markup = false);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(std::shared_ptr<const class Dict> dict) { return Value(Data(std::move(dict))); }
  static Value object(std::shared_ptr<Object> object) { return Value(Data(std::move(object))); }

  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_undefined() const { return std::holds_alternative<std::shared_ptr<const UndefinedInfo>>(data_); }
  bool is_boolean() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<Integer>(data_); }
  bool is_real() const { return std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<std::shared_ptr<const Text>>(data_); }
  bool is_sequence() const { return std::holds_alternative<std::shared_ptr<const Sequence>>(data_); }
  bool is_list() const { return is_sequence() && sequence().type == Sequence::Type::List; }
  bool is_tuple() const { return is_sequence() && sequence().type == Sequence::Type::Tuple; }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<Object>>(data_); }
  bool is_markup() const { return is_string() && text().markup; }
  bool is_int_like() const { return is_integer() || is_boolean(); }  // types that Python accepts as an index
  bool is_number() const { return is_int_like() || is_real(); }

  bool as_boolean() const { return std::get<bool>(data_); }
  Integer as_integer() const { return is_boolean() ? Integer(as_boolean()) : std::get<Integer>(data_); }
  double as_real() const;  // for any number
  const UndefinedInfo& undefined_info() const { return *std::get<std::shared_ptr<const UndefinedInfo>>(data_); }
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const std::string& str() const { return text().bytes; }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const std::vector<Value>& items() const { return sequence().items; }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const std::shared_ptr<Object>& as_object() const { return std::get<std::shared_ptr<Object>>(data_); }
  template <class T>
  std::shared_ptr<T> object_as() const {
    return is_object() ? std::dynamic_pointer_cast<T>(as_object()) : nullptr;
  }

  // Python's `is`: the same object in memory, or the same small constant.
  bool is_same(const Value& other) const;
  int depth() const;
  bool has_content() const;  // bytes from the conversation, also inside of containers; objects count as content
  std::string_view type_name() const;

 private:
  using Data = std::variant<std::monostate, bool, Integer, double, std::shared_ptr<const UndefinedInfo>,
                            std::shared_ptr<const Text>, std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Object>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

// Keeps the order of insertion. Keys may be any hashable value.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* find(const Value& key) const;  // fails for an unhashable key
  const Value* find(std::string_view key) const;
  // Only during construction. An existing key keeps its position and takes the new value.
  void set(Value key, Value value);
  int depth() const { return depth_; }
  bool content() const { return content_; }  // as in Sequence

 private:
  template <class Matches>
  const Entry* lookup(size_t hash, Matches matches) const;

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_;  // hash to position; empty for small dicts, which are scanned
  int depth_ = 1;
  bool content_ = false;
  MemoryClaim claim_;
};

// The largest nesting depth of containers.
inline constexpr int kMaxValueDepth = 200;
// Fails if the depth is larger; else returns it.
int checked_depth(int depth);

// Quotes a name for messages: 'name'.
std::string in_quotes(std::string_view name);

}  // namespace millrace::jinja
