#include "text/jinja/value/tojson.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/builtin/format_spec.h"
#include "text/jinja/template_error.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/object.h"
#include "text/jinja/value/repr.h"
#include "text/jinja/value/text_builder.h"
#include "text/jinja/value/unicode.h"

namespace millrace::jinja {
namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    Budget::spend();
    if (value.is_string()) {
      write_text(value.str());
    } else if (value.is_none()) {
      out_.append("null");
    } else if (value.is_number()) {
      out_.append(number_text(value));
    } else if (value.is_sequence()) {
      write_list(value.items());
    } else if (value.is_dict()) {
      write_dict(value.as_dict());
    } else {
      fail_template("Object of type {} is not JSON serializable", value.type_name());
    }
  }

  std::string take() { return out_.take(); }

 private:
  static std::string number_text(const Value& value) {
    if (value.is_boolean()) return value.as_boolean() ? "true" : "false";
    if (value.is_integer()) return integer_text(value.as_integer());
    const double x = value.as_real();
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x < 0 ? "-Infinity" : "Infinity";
    return repr_real(x);
  }

  void write_text(std::string_view text) {
    out_.append("\"");
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      while (at < text.size() && is_plain(text[at])) ++at;
      out_.append(text.substr(start, at - start));
      if (at < text.size()) write_escaped(next_code_point(text, at));
    }
    out_.append("\"");
  }

  bool is_plain(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && c != '"' && c != '\\' && (byte < 0x80 || !style_.ensure_ascii);
  }

  void write_escaped(char32_t c) {
    static constexpr std::string_view kCharacters = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    const size_t known = c < 0x80 ? kCharacters.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out_.append("\\").append(kLetters.substr(known, 1));
      return;
    }
    const auto code = static_cast<uint32_t>(c);
    out_.append(code < 0x10000 ? fmt::format("\\u{:04x}", code)
                               : fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                                             0xdc00 + ((code - 0x10000) & 0x3ff)));
  }

  void line_break() {
    if (style_.indent) out_.append("\n").append(static_cast<size_t>(level_), *style_.indent);
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_.append("[]");
      return;
    }
    out_.append("[");
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      line_break();
      write(items[i]);
    }
    --level_;
    line_break();
    out_.append("]");
  }

  void write_dict(const Dict& dict) {
    if (dict.size() == 0) {
      out_.append("{}");
      return;
    }
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return less(a->first, b->first); });
    }
    out_.append("{");
    ++level_;
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      if (!first) out_.append(style_.item_separator);
      first = false;
      line_break();
      write_text(key_text(entry->first));
      out_.append(style_.key_separator);
      write(entry->second);
    }
    --level_;
    line_break();
    out_.append("}");
  }

  static std::string key_text(const Value& key) {
    if (key.is_string()) return key.str();
    if (key.is_none()) return "null";
    if (key.is_number()) return number_text(key);
    fail_template("keys must be str, int, float, bool or None, not {}", key.type_name());
  }

  const JsonStyle& style_;
  int level_ = 0;
  TextBuilder out_;
};

}  // namespace

JsonStyle::JsonStyle(const Arguments& arguments) {
  const BoundArguments args(arguments, "tojson", {"ensure_ascii?", "indent?", "separators?", "sort_keys?"});
  ensure_ascii = args.flag(0, false);
  sort_keys = args.flag(3, false);
  if (args.has(1) && !args[1].is_none()) {
    const bool by_text = args[1].is_string();
    indent = by_text
                 ? args[1].str()
                 : std::string(static_cast<size_t>(checked_format_width(std::max<Integer>(0, args.integer(1)))), ' ');
    item_separator = ",";
  }
  if (args.has(2) && !args[2].is_none()) {
    const std::vector<Value> separators = to_vector(args[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail_template("tojson: separators must be a pair of strings");
    }
    item_separator = separators[0].str();
    key_separator = separators[1].str();
  }
}

std::string to_json_text(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace millrace::jinja
