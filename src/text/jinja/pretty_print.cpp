#include "text/jinja/pretty_print.h"

#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/object.h"
#include "text/jinja/repr.h"
#include "text/jinja/split.h"
#include "text/jinja/text_builder.h"
#include "text/jinja/unicode.h"

namespace millrace::jinja {
namespace {

constexpr int64_t kWidth = 80;

int64_t width_of(std::string_view text) { return static_cast<int64_t>(count_code_points(text)); }

bool comparable(const Value& a, const Value& b) {
  return (a.is_number() && b.is_number()) || (a.is_string() && b.is_string()) ||
         (a.is_tuple() && b.is_tuple() && a.items().empty() && b.items().empty());
}

// pprint sorts the keys of a dict, and keys of different types by the names of the types.
Value sorted_dict(const Dict& dict) {
  std::vector<Dict::Entry> entries = dict.entries();
  std::stable_sort(entries.begin(), entries.end(), [](const Dict::Entry& a, const Dict::Entry& b) {
    return comparable(a.first, b.first) ? less(a.first, b.first) : a.first.type_name() < b.first.type_name();
  });
  auto sorted = std::make_shared<Dict>();
  for (auto& [key, value] : entries) sorted->set(std::move(key), std::move(value));
  return Value::dict(sorted);
}

// The value with all dicts within it sorted.
Value sorted(const Value& value) {
  Budget::spend();
  if (value.is_dict()) {
    const Value by_key = sorted_dict(value.as_dict());
    auto dict = std::make_shared<Dict>();
    for (const auto& [key, item] : by_key.as_dict().entries()) dict->set(key, sorted(item));
    return Value::dict(dict);
  }
  if (!value.is_sequence()) return value;
  std::vector<Value> items;
  for (const Value& item : value.items()) items.push_back(sorted(item));
  return value.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

// Words, each with the white space behind it.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  bool in_space = false;
  size_t start = 0;
  for (size_t at = 0; at < line.size();) {
    const size_t here = at;
    const bool space = is_space(next_code_point(line, at));
    if (in_space && !space) {
      words.push_back(line.substr(start, here - start));
      start = here;
    }
    in_space = space;
  }
  if (start < line.size()) words.push_back(line.substr(start));
  return words;
}

class PrettyPrinter {
 public:
  // `indent` is the column we are at; `allowance` the room that closing brackets will need.
  void print(const Value& value, int64_t indent, int64_t allowance, int level) {
    Budget::spend();
    const std::string text = repr(value);
    const bool splittable = value.is_sequence() || value.is_dict() || (value.is_string() && !value.is_markup());
    if (!splittable || width_of(text) <= kWidth - indent - allowance) {
      out_.append(text);
    } else if (value.is_string()) {
      print_text(value.str(), indent, allowance, level + 1);
    } else if (value.is_dict()) {
      print_dict(value.as_dict(), indent, allowance + 1, level + 1);
    } else {
      print_items(value, indent, allowance, level + 1);
    }
  }

  std::string take() { return out_.take(); }

 private:
  void line_break(int64_t indent) { out_.append("\n").append(static_cast<size_t>(std::max<int64_t>(0, indent)), " "); }

  void print_dict(const Dict& dict, int64_t indent, int64_t allowance, int level) {
    out_.append("{");
    ++indent;
    for (size_t i = 0; i < dict.size(); ++i) {
      const auto& [key, value] = dict.entries()[i];
      const bool last = i + 1 == dict.size();
      const std::string name = repr(key);
      out_.append(name).append(": ");
      print(value, indent + width_of(name) + 2, last ? allowance : 1, level);
      if (!last) {
        out_.append(",");
        line_break(indent);
      }
    }
    out_.append("}");
  }

  void print_items(const Value& value, int64_t indent, int64_t allowance, int level) {
    const auto& items = value.items();
    const std::string_view end = value.is_list() ? "]" : items.size() == 1 ? ",)" : ")";
    out_.append(value.is_list() ? "[" : "(");
    ++indent;
    for (size_t i = 0; i < items.size(); ++i) {
      const bool last = i + 1 == items.size();
      print(items[i], indent, last ? allowance + static_cast<int64_t>(end.size()) : 1, level);
      if (!last) {
        out_.append(",");
        line_break(indent);
      }
    }
    out_.append(end);
  }

  void print_text(const std::string& text, int64_t indent, int64_t allowance, int level) {
    const bool top = level == 1;
    if (top) ++indent, ++allowance;
    std::vector<std::string> chunks;
    const std::vector<std::string_view> lines = split_lines(text, true);
    for (size_t i = 0; i < lines.size(); ++i) {
      const int64_t reserved = i + 1 == lines.size() ? allowance : 0;
      std::string whole = repr_text(lines[i]);
      if (width_of(whole) <= kWidth - indent - reserved) {
        chunks.push_back(std::move(whole));
      } else {
        break_line(lines[i], kWidth - indent, reserved, chunks);
      }
    }
    if (chunks.size() == 1) {
      out_.append(repr_text(lines.back()));
      return;
    }
    if (top) out_.append("(");
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) line_break(indent);
      out_.append(chunks[i]);
    }
    if (top) out_.append(")");
  }

  static void break_line(std::string_view line, int64_t width, int64_t reserved, std::vector<std::string>& chunks) {
    const std::vector<std::string_view> words = words_of(line);
    std::string current;
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string candidate = current + std::string(words[i]);
      if (i + 1 == words.size()) width -= reserved;
      if (width_of(repr_text(candidate)) > width) {
        if (!current.empty()) chunks.push_back(repr_text(current));
        current = words[i];
      } else {
        current = candidate;
      }
      Budget::spend();
    }
    if (!current.empty()) chunks.push_back(repr_text(current));
  }

  TextBuilder out_;
};

}  // namespace

std::string pretty_print(const Value& value) {
  PrettyPrinter printer;
  printer.print(sorted(value), 0, 0, 0);
  return printer.take();
}

}  // namespace millrace::jinja
